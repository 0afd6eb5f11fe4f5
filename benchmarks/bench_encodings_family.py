"""What each encoding of the camera adapter costs beside UCPE, in one run, rounds interleaved, medians of ratios.

    python benchmarks/bench_encodings_family.py [--rounds 5] [--frames 21] [--rows 15] [--columns 26]

1. Attention of the branch of Wan2.1-1.3B at compression 8 (1 head of 192), forward.
2. A training step of the adapter on the desk model: forward and backward through the frozen base (goal for Sightline:
   at most 1.10 of UCPE's).
3. Far cameras: how far the output is from float64's and how many keys a query attends to, plainly and with SANA-WM's
   rescaling.

Processor time of one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from ucpe.adapters import CameraAdapter
from ucpe.adapters.camera_adapter import BRANCH_ENCODINGS
from ucpe.desk import FRAMES, HEIGHT, WIDTH
from ucpe.encodings import Operator, camera_attention, camera_operator
from ucpe.encodings.operators import PAIRWISE
from ucpe.lenses import UCM
from ucpe.training.base_models import sized_transformer
from ucpe.training.recipes import RECIPES
from ucpe.trajectories import Trajectory

LENS = UCM(xfov=120, xi=0.6)
BATCH = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=21)
    parser.add_argument("--rows", type=int, default=15)
    parser.add_argument("--columns", type=int, default=26)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    compare_attention(options.frames, options.rows, options.columns, options.rounds)
    compare_steps(options.rounds)
    far_cameras()


def compare_attention(frames: int, rows: int, columns: int, rounds: int) -> None:
    camera = Trajectory.orbit(LENS, degrees=40, frames=frames)
    tensors = torch.randn(3, 1, 1, frames * rows * columns, 192)
    operators = {
        name: camera_operator(name, camera.lens, camera.c2w, rows, columns, 192)  # type: ignore[arg-type]
        for name in ("ucpe", *PAIRWISE)
    }
    with torch.no_grad():
        ratios = interleaved({name: lambda o=o: camera_attention(*tensors, o) for name, o in operators.items()}, rounds)
    for name, ratio in ratios.items():
        print(f"attention, {frames} x {rows} x {columns} tokens: {name:<10} {ratio:.3f} of UCPE's")


def compare_steps(rounds: int) -> None:
    transformer = sized_transformer(RECIPES["desk-ucpe"])
    camera = Trajectory.orbit(LENS, degrees=40, frames=FRAMES)
    grid = ((FRAMES - 1) // 4 + 1, HEIGHT // 8, WIDTH // 8)
    latents = torch.randn(BATCH, transformer.config.in_channels, *grid)
    text = torch.randn(BATCH, 8, transformer.config.text_dim)

    def step(adapter: CameraAdapter) -> Callable[[], object]:
        condition = adapter.encode([camera] * BATCH, height=HEIGHT, width=WIDTH)

        def run() -> None:
            adapter.attach(transformer)
            with adapter.camera(condition):
                output = transformer(latents, torch.full((BATCH,), 500), text, return_dict=False)[0]
            output.square().mean().backward()
            adapter.detach()

        return run

    steps = {}
    for name in BRANCH_ENCODINGS:
        options = RECIPES["desk-ucpe"].adapter_options() | {"encoding": name}
        adapter = CameraAdapter.for_transformer(transformer, **options)
        adapter.set_trainable(transformer)
        steps[name] = step(adapter)
    for name, ratio in interleaved(steps, rounds).items():
        print(f"adapter step, desk model, {grid[0]} x {grid[1] // 2} x {grid[2] // 2} tokens: {name:<10} {ratio:.3f}")


def far_cameras() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(3, 1, 1, 240, 64, generator=generator)
    directions = torch.nn.functional.normalize(torch.randn(5, 3, generator=generator), dim=-1)
    for distance in (1, 10, 100, 1000):
        c2w = torch.eye(4).repeat(5, 1, 1)
        c2w[:, :3, 3] = distance * directions * torch.linspace(0, 1, 5)[:, None]
        for name, options in REMEDIES.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                operator = camera_operator("ucpe", LENS, c2w, 6, 8, 64, dtype=torch.float64)
                moved = camera_operator("ucpe", LENS, c2w, 6, 8, 64, dtype=torch.float64, anchor=c2w[-1])
            exact = camera_attention(*tokens.double(), operator, **options)
            errors = [error(low(tokens, operator, dtype, options), exact) for dtype in LOWER]
            elsewhere = error(camera_attention(*tokens.double(), moved, **options), exact)
            print(
                f"cameras up to {distance:>4} away, {name:<8} "
                + ", ".join(f"{str(dtype)[6:]} {value:.1e}" for dtype, value in zip(LOWER, errors))
                + f"; world at the last camera {elsewhere:.1e}; keys attended {attended(tokens, operator, options):.0f}"
            )


REMEDIES: dict[str, dict[str, bool]] = {"plain": {}, "rescale": {"rescale": True}, "discount": {"discount": True}}

LOWER = (torch.float32, torch.bfloat16, torch.float16)


def low(tokens: Tensor, operator: Operator, dtype: torch.dtype, options: dict[str, bool]) -> Tensor:
    """Attention of tokens in a lower precision, cameras kept in float32."""
    return camera_attention(*tokens.to(dtype), operator.to(torch.float32), **options)


def attended(tokens: Tensor, operator: Operator, options: dict[str, bool]) -> float:
    """Number of equal keys that would give a query's weights their entropy, averaged over queries."""
    identity = torch.eye(tokens.shape[-2]).double()[None, None]
    weights = []
    for start in range(0, tokens.shape[-2], 64):  # attention to one-hot values, read off without their transforms
        value = torch.zeros(1, 1, tokens.shape[-2], 64, dtype=torch.float64)
        part = identity[..., start : start + 64]
        value[..., : part.shape[-1]] = part
        free = operator.replaced(transforms_value=False)
        weights.append(camera_attention(*tokens[:2].double(), value, free, **options)[..., : part.shape[-1]])
    share = torch.cat(weights, dim=-1)
    return float((-(share * share.clamp(min=1e-30).log()).sum(-1)).exp().mean())


def error(found: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what is expected."""
    return float((found.double() - expected).norm() / expected.norm())


def interleaved(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Processor time of each run over that of the first, medians over rounds."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            started = time.process_time()
            run()
            taken[name].append(time.process_time() - started)
    first = taken[next(iter(runs))]
    return {name: statistics.median(b / a for a, b in zip(first, times)) for name, times in taken.items()}


if __name__ == "__main__":
    main()
