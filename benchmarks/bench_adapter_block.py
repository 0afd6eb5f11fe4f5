"""One block of Wan2.1-1.3B at true size with and without the camera adapter: time, memory, and where the time goes.

    python benchmarks/bench_adapter_block.py --rounds 5 --threads 2

Both run in turn in one process; every number is the median over rounds, a ratio the median of the rounds' ratios. The
processor-time columns are the ones to read on a machine that others use too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor, nn

from ucpe.adapters import CameraAdapter, CameraCondition
from ucpe.adapters.sizes import PRESETS
from ucpe.encodings import camera_attention
from ucpe.lenses import UCM
from ucpe.trajectories import Trajectory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--frames", type=int, default=81, help="video frames (81 -> 21 latent)")
    parser.add_argument("--height", type=int, default=240)
    parser.add_argument("--width", type=int, default=416)
    parser.add_argument("--compression", type=int, default=8)
    parser.add_argument("--encoding", default="ucpe")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--skip-training", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)

    torch.manual_seed(0)
    transformer: Any = WanTransformer3DModel(**{**PRESETS["wan2.1-1.3b"], "num_layers": 1})
    transformer.eval()
    adapter = CameraAdapter.for_transformer(transformer, compression=options.compression, encoding=options.encoding)
    if dtype != torch.float32:
        transformer.to(dtype)
        adapter.to(dtype)  # type: ignore[arg-type]
    adapter.set_trainable(transformer)
    for parameter in adapter.parameters():
        nn.init.normal_(parameter, std=0.02)
    camera = Trajectory.orbit(UCM(xfov=150, xi=1.0), degrees=40, frames=options.frames, pitch=-10, roll=5)
    started = time.perf_counter()
    condition = adapter.encode(camera, height=options.height, width=options.width)
    encoding_time = time.perf_counter() - started
    grid = condition.grid
    tokens = grid.frames * grid.rows * grid.columns
    print(f"{grid.frames} x {grid.rows} x {grid.columns} = {tokens:,} tokens, width 1536, {options.dtype}, ", end="")
    print(f"branch of {adapter.heads} x {adapter.head_dim}, {options.threads} thread(s), {options.rounds} round(s)")

    block = BlockTimer(transformer.blocks[0])
    latents = torch.randn(1, 16, grid.frames, 2 * grid.rows, 2 * grid.columns, dtype=dtype)
    text, timestep = torch.randn(1, 512, 4096, dtype=dtype), torch.tensor([500])

    def call(adapted: bool, requires_grad: bool = False) -> Tensor:
        """The transformer of one block, with or without the adapter."""
        arguments = (latents.detach().requires_grad_(requires_grad), timestep, text)
        if not adapted:
            return transformer(*arguments, return_dict=False)[0]
        adapter.attach(transformer)
        try:
            with adapter.camera(condition):
                return transformer(*arguments, return_dict=False)[0]
        finally:
            adapter.detach()

    def forward(adapted: bool) -> tuple[float, float]:
        with torch.no_grad():
            call(adapted)
        return block.elapsed

    def training(adapted: bool) -> tuple[float, float]:
        """Forward, and backward to the block's input (as blocks below need it) and to the adapter's weights."""
        started = now()
        call(adapted, requires_grad=True).float().square().mean().backward()
        adapter.zero_grad()
        return since(started)

    measures = [("forward", forward)] + ([] if options.skip_training else [("training step", training)])
    print(f"\n{'':16}{'base':>9}{'adapter':>9}{'ratio':>8}   {'base':>9}{'adapter':>9}{'ratio':>8}")
    print(f"{'':16}{'wall time, s':^26}   {'processor time, s':^26}")
    for name, measure in measures:
        samples: dict[str, list[tuple[float, float]]] = {"wall": [], "cpu": []}
        for _ in range(options.rounds):
            pairs = [measure(False), measure(True)]
            for index, kind in enumerate(samples):
                samples[kind].append((pairs[0][index], pairs[1][index]))
        columns = []
        for values in samples.values():
            base, adapted = (statistics.median(column) for column in zip(*values))
            ratio = statistics.median(after / before for before, after in values)
            columns.append(f"{base:9.2f}{adapted:9.2f}{ratio:8.3f}")
        print(f"{name:16}" + "   ".join(columns))

    report_memory(transformer, adapter, call)
    report_parts(adapter, condition, torch.randn(1, tokens, 1536, dtype=dtype), options.rounds)
    print(f"\nencoding the camera, once for all blocks and steps: {encoding_time:.2f} s")


class BlockTimer:
    """Wall and processor seconds of a block's last run."""

    def __init__(self, block: nn.Module):
        self.started = self.elapsed = (0.0, 0.0)
        block.register_forward_pre_hook(lambda *_: setattr(self, "started", now()))
        block.register_forward_hook(lambda *_: setattr(self, "elapsed", since(self.started)))


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def since(started: tuple[float, float]) -> tuple[float, float]:
    wall, processor = now()
    return wall - started[0], processor - started[1]


def report_memory(transformer: nn.Module, adapter: CameraAdapter, call: Callable[..., Tensor]) -> None:
    """Bytes that autograd keeps for the backward pass, weights left out: the same on every device."""

    def kept(adapted: bool) -> int:
        weights = {p.untyped_storage().data_ptr() for module in (transformer, adapter) for p in module.parameters()}
        seen: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                seen[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            output = call(adapted, requires_grad=True)
        del output
        return sum(seen.values())

    base, adapted = kept(False), kept(True)
    own = sum(p.numel() * p.element_size() for p in adapter.parameters())
    print(f"\nkept for backward: {base / 2**20:.0f} MiB base, {adapted / 2**20:.0f} MiB with the adapter ", end="")
    print(f"({adapted / base:.3f}x); adapter weights {own / 2**20:.1f} MiB a block")


def processor_time(part: Callable[[], object]) -> float:
    started = now()
    part()
    return since(started)[1]


def report_parts(adapter: CameraAdapter, condition: CameraCondition, hidden_states: Tensor, rounds: int) -> None:
    layers: Any = adapter.blocks[0]
    operator: Any = condition.operator
    orientation: Any = condition.features
    with torch.no_grad():
        features = orientation.to(hidden_states.dtype)
        query, key, value = (
            p(hidden_states).unflatten(-1, (adapter.heads, -1)).transpose(1, 2)
            for p in (layers.q_proj, layers.k_proj, layers.v_proj)
        )
        attended = camera_attention(query, key, value, operator)
        flat = attended.transpose(1, 2).flatten(2)
        parts: dict[str, Callable[[], object]] = {
            "Lat-Up, projected and added": lambda: hidden_states + layers.cam_encoder(features),
            "queries, keys, values": lambda: [p(hidden_states) for p in (layers.q_proj, layers.k_proj, layers.v_proj)],
            "operators on q, k, v and output": lambda: (
                operator.query(query),
                operator.key(key),
                operator.value(value),
                operator.output(attended),
            ),
            "attention": lambda: nn.functional.scaled_dot_product_attention(query, key, value),
            "output projection": lambda: layers.out_proj(flat),
        }
        measured = {
            name: statistics.median(processor_time(part) for _ in range(max(rounds, 3))) for name, part in parts.items()
        }
    total = sum(measured.values())
    print("\nthe branch's forward, in processor time:")
    for name, seconds in measured.items():
        print(f"  {name:34}{seconds:8.3f} s {seconds / total:6.1%}")


if __name__ == "__main__":
    main()
