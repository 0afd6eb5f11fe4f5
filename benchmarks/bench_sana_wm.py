"""SANA-WM with our cameras: what they add to a step of the transformer, and what encoding a minute of video costs.

python benchmarks/bench_sana_wm.py

Two true-size blocks (one recurrent, one softmax; width 2240, 20 heads of 112) run in turn with the transformer's own
pinhole and with a camera of ours, in one process, in processor seconds; the median of the rounds. Weights are random.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from diffusers import SanaWMTransformer3DModel
from diffusers.pipelines.sana_wm.cam_utils import prepare_camera

from ucpe.adapters import SanaWMCamera
from ucpe.lenses import UCM, Pinhole
from ucpe.trajectories import Trajectory, to_pinhole_arrays


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def own_camera(camera: Trajectory, height: int, width: int) -> dict[str, torch.Tensor]:
    """What diffusers' pipeline makes of a pinhole camera."""
    arrays = to_pinhole_arrays(camera, height, width)
    return prepare_camera(*arrays, target_size=(height, width), vae_stride=(8, 32, 32))


def overhead(rounds: int, height: int, width: int, frames: int) -> None:
    torch.manual_seed(0)
    transformer = SanaWMTransformer3DModel(num_layers=2, softmax_every_n=2).eval()
    adapter = SanaWMCamera.for_transformer(transformer).attach(transformer, required=False)
    grid = (frames - 1) // 8 + 1, height // 32, width // 32
    latents, text, mask = torch.randn(1, 128, *grid), torch.randn(1, 1, 300, 2304), torch.ones(1, 300)
    timestep = torch.full((1, 1, grid[0]), 500.0)
    pinhole = Trajectory.orbit(Pinhole(xfov=80), degrees=30, frames=frames)
    packed = own_camera(pinhole, height, width)
    own = {"camera_conditions": packed["raymap"][None], "chunk_plucker": packed["chunk_plucker"][None]}

    def step(**camera: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return transformer(latents, timestep, text, mask=mask, return_dict=False, **camera)[0]

    lenses = {"pinhole": pinhole.lens, "UCM 150": UCM(xfov=150, xi=1.2), "dark corners": UCM(xfov=200, xi=2.3)}
    cameras = {name: pinhole.with_lens(lens) for name, lens in lenses.items()}
    conditions = {name: adapter.encode(camera, height, width) for name, camera in cameras.items()}
    times: dict[str, list[float]] = {"its own pinhole": [], **{name: [] for name in cameras}}
    for index in range(rounds + 1):
        found = {"its own pinhole": seconds(lambda: step(**own))}
        for name, condition in conditions.items():
            with adapter.camera(condition):
                found[name] = seconds(step)
        if index:  # the first round warms up
            for name, value in found.items():
                times[name].append(value)
    base = statistics.median(times["its own pinhole"])
    tokens = grid[0] * grid[1] * grid[2]
    print(f"one step of two blocks, {tokens} tokens, median of {rounds} rounds")
    for name, values in times.items():
        print(f"  {name:24} {statistics.median(values):7.2f} s  ratio {statistics.median(values) / base:.3f}")
    with adapter.camera(conditions["pinhole"]):
        ours = step()
    untouched = step(**own)
    print(f"  pinhole, ours against its own: largest difference {(ours - untouched).abs().max().item():.1e} of outputs "
          f"up to {untouched.abs().max().item():.1f}")  # fmt: skip


def encoding(rounds: int, lengths: tuple[int, ...], height: int, width: int) -> None:
    adapter = SanaWMCamera()
    print(f"encoding a camera for {height} x {width}, the best of {rounds} rounds")
    for lens in (Pinhole(xfov=80), UCM(xfov=150, xi=1.2)):
        first = 0.0
        for frames in lengths:
            camera = Trajectory.orbit(lens, degrees=30, frames=frames)
            took = [seconds(lambda camera=camera: adapter.encode(camera, height, width)) for _ in range(rounds)]
            each = min(took) / frames
            first = first or each
            print(f"  {lens.kind:8} {frames:4} frames {min(took):6.3f} s, {1000 * each:.2f} ms a frame, "
                  f"{each / first:.2f} of that at {lengths[0]}")  # fmt: skip


def precision(height: int = 704, width: int = 1280, frames: int = 81) -> None:
    """Rays in bfloat16: computed there, as diffusers does on a GPU, or in float64 and rounded once, as ours are."""
    from diffusers.models.transformers import transformer_sana_wm as theirs

    camera = Trajectory.orbit(Pinhole(xfov=80), degrees=30, frames=frames)
    packed = own_camera(camera, height, width)
    exact = SanaWMCamera().encode(camera, height, width).operator.blocks[0]  # type: ignore[union-attr]
    grid = theirs.create_grid
    theirs.create_grid = lambda *a, **k: grid(*a, **{**k, "dtype": torch.float32}).to(k["dtype"])  # it refuses on a CPU
    try:
        low, _ = theirs._process_camera_conditions_ucpe(
            packed["raymap"][None].bfloat16(), 1, (len(packed["raymap"]), height // 32, width // 32), (1, 1, 1)
        )
    finally:
        theirs.create_grid = grid

    def degrees(matrices: torch.Tensor) -> float:
        z = torch.nn.functional.normalize(matrices[:, 2, :3].double(), dim=-1)
        cosine = (z * exact[:, 2, :3].double()).sum(-1).clamp(max=1)
        return torch.rad2deg(cosine.acos()).max().item()

    print(f"largest error of a ray in bfloat16: {degrees(low[0].flatten(0, 2).float()):.2f} degrees computed in it, "
          f"{degrees(exact.bfloat16().float()):.2f} rounded to it")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--height", type=int, default=352)
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--frames", type=int, default=17)
    options = parser.parse_args()
    torch.set_num_threads(1)
    precision()
    encoding(3 * options.rounds, (81, 241, 961), 704, 1280)
    overhead(options.rounds, options.height, options.width, options.frames)
