"""Time per video and what a camera adapter adds to it, on whatever device is there (Table D of the paper)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import torch

from ucpe.bench.runs import processor_name
from ucpe.bench.tables import markdown_table
from ucpe.evaluation.report.quoted import quoted_rows
from ucpe.generation.pipeline import CameraPipeline
from ucpe.trajectories import DEFAULT_LENS, Trajectory

PROMPT = "a red house on a meadow"


@dataclass(frozen=True)
class Latency:
    """Seconds for one video with the adapter and without it: medians over repeats taken in turn."""

    model: str
    device: str
    frames: int
    height: int
    width: int
    steps: int
    repeats: int
    seconds: float
    base_seconds: float
    adapter_parameters: int

    @property
    def overhead(self) -> float:
        """Share that the adapter adds to the time without it."""
        return self.seconds / self.base_seconds - 1

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return asdict(self) | {"overhead": self.overhead}


def time_in_turn(
    calls: Sequence[Callable[[], Any]],
    repeats: int,
    warmup: int = 1,
    synchronize: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = perf_counter,
) -> list[float]:
    """Median seconds of each call; the calls take turns, so that a machine that slows down slows all of them."""
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, got {repeats}")
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(warmup + repeats):
        for call, times in zip(calls, taken):
            synchronize()
            started = clock()
            call()
            synchronize()
            if turn >= warmup:
                times.append(clock() - started)
    return [median(times) for times in taken]


def measure_latency(
    pipeline: CameraPipeline,
    name: str,
    *,
    frames: int | None = None,
    height: int | None = None,
    width: int | None = None,
    steps: int | None = None,
    repeats: int = 3,
    warmup: int = 1,
) -> Latency:
    """Seconds per video of a pipeline with its adapter, and of the same pipeline with the adapter detached."""
    defaults = pipeline.defaults
    frames, steps = frames or defaults.frames, steps or defaults.steps
    height, width = height or defaults.height, width or defaults.width
    camera = Trajectory.orbit(DEFAULT_LENS, degrees=30, frames=frames, fps=defaults.fps)

    sizes: dict[str, Any] = {"height": height, "width": width, "num_inference_steps": steps}
    with_adapter = partial(pipeline, PROMPT, camera, **sizes)
    adapter, transformer = pipeline.adapter, pipeline.transformer
    device = next(transformer.parameters()).device

    def detached() -> None:
        adapter.detach()
        try:
            with_adapter(follow_camera=False)
        finally:
            adapter.attach(transformer, required=False)

    synchronize = getattr(getattr(torch, device.type, None), "synchronize", lambda: None)
    with torch.no_grad():
        seconds, base = time_in_turn([with_adapter, detached], repeats, warmup, synchronize)
    return Latency(
        model=name,
        device=device_name(device),
        frames=frames,
        height=height,
        width=width,
        steps=steps,
        repeats=repeats,
        seconds=seconds,
        base_seconds=base,
        adapter_parameters=sum(parameter.numel() for parameter in adapter.parameters()),
    )


def device_name(device: torch.device) -> str:
    """What a device is called, with the number of threads for a CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "cpu":
        return f"{processor_name()}, {torch.get_num_threads()} threads"
    return str(device)


def markdown(latencies: Sequence[Latency]) -> str:
    """Table D with these measurements and, marked as quoted, the paper's."""
    head = ["Method", "Time (s)", "without adapter (s)", "adapter adds", "Frames", "Resolution", "Steps", "Device"]
    rows = []
    for item in latencies:
        times = [f"{item.seconds:.2f}", f"{item.base_seconds:.2f}", f"{100 * item.overhead:+.1f} %", f"{item.frames}"]
        rows.append([item.model, *times, f"{item.height} x {item.width}", f"{item.steps}", item.device])
    for row in quoted_rows("D"):
        seconds, frames = (f"{row.metrics[name]:.0f}" for name in ("seconds", "frames"))
        rows.append([f"{row.method} (quoted)", seconds, "–", "–", frames, row.group, "–", "NVIDIA A800"])
    return markdown_table(head, rows)
