"""Videos to generate, one after the other, beside the page: progress, time left, cancel, and what came out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from ucpe.files import write_json
from ucpe.generation.requests import Request, make_video
from ucpe.studio.drawing import horizon_lines
from ucpe.studio.shot import Shot
from ucpe.synthesis.scenes import open_scene, pictures
from ucpe.video import write_video

RESULT = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")


ERRORS = {"PitchErr": "pitch", "RollErr": "roll", "FoVErr": "field of view", "RotErr": "rotation"}
"""Metrics of a result that are shown, in degrees, and what they are called."""


ESTIMATORS = {"desk": "the desk model's own estimators", "colmap": "COLMAP and GeoCalib"}


class Cancelled(Exception):
    """The person does not want the video any more."""


@dataclass
class Job:
    """A video on its way."""

    name: str
    request: Request
    shot: Shot
    scene: str
    """What to film beside the video, as `ucpe render` takes it."""
    state: str = "waiting"
    """waiting, loading, making, measuring, done, failed or cancelled."""
    done: int = 0
    total: int = 0
    started: float = 0.0
    message: str = ""
    stop: Event = field(default_factory=Event)

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def words(self) -> str:
        """How far it is, for people."""
        if self.stop.is_set() and not self.finished:
            return "stopping"
        if self.state != "making":
            return {"loading": "loading the model", "measuring": "measuring the result"}.get(self.state, self.state)
        time_left = ""
        if self.done:
            left = (time.monotonic() - self.started) / self.done * (self.total - self.done)
            time_left = f", {left:.0f} s left" if left < 90 else f", {left / 60:.0f} min left"
        return f"step {self.done} of {self.total}{time_left}"


class Queue:
    """Makes one video at a time; `load` gives the pipeline, which is kept."""

    def __init__(self, folder: Path, load: Callable[[], Any], measure: Callable[[Path, Request], dict[str, Any]]):
        self.folder, self.load, self.measure = folder, load, measure
        self.jobs: list[Job] = []
        self.waiting: SimpleQueue[Job] = SimpleQueue()
        self.pipe: Any = None
        Thread(target=self._work, daemon=True, name="studio-queue").start()

    def submit(self, job: Job) -> None:
        """Put a video at the end of the queue."""
        self.jobs.append(job)
        self.waiting.put(job)

    def cancel(self, job: Job) -> None:
        """Stop a video at its next step, or before it begins; forget one that failed."""
        job.stop.set()
        if job.state in ("waiting", "failed"):
            job.state = "cancelled"

    def _work(self) -> None:
        while True:
            job = self.waiting.get()
            if job.state != "waiting":
                continue
            try:
                self._make(job)
            except Cancelled:
                job.state = "cancelled"
            except Exception as error:  # the page shows whatever went wrong, and the queue goes on
                job.state, job.message = "failed", str(error) or type(error).__name__

    def _make(self, job: Job) -> None:
        job.state = "loading"
        if self.pipe is None:
            self.pipe = self.load()
        job.state, job.started = "making", time.monotonic()

        def on_step(done: int, total: int) -> None:
            job.done, job.total = done, total
            if job.stop.is_set():
                raise Cancelled

        on_step(0, job.request.steps or self.pipe.defaults.steps)
        path = self.folder / f"{job.name}.mp4"
        make_video(self.pipe, job.request, path, on_step=on_step)
        job.state = "measuring"
        self._compare(job, path)
        job.state = "done"

    def _compare(self, job: Job, path: Path) -> None:
        """Film the scene with the same camera, draw the horizon of every frame, and measure what came out."""
        request = job.request.with_defaults(self.pipe.defaults)
        camera, height, width = request.camera, request.height, request.width
        assert height is not None and width is not None
        commanded = pictures(open_scene(job.scene), camera, height, width)
        write_video(path.with_suffix(".commanded.mp4"), commanded, camera.fps)
        record = {
            "shot": job.shot.to_dict(), "height": height, "width": width, "fps": camera.fps,
            "horizon": horizon_lines(camera, height, width), "measured": self.measure(path, request),
        }  # fmt: skip
        write_json(path.with_suffix(".studio.json"), record)


def results(folder: Path) -> list[str]:
    """Names of finished results, newest first."""
    names = (path.name.removesuffix(".studio.json") for path in folder.glob("*.studio.json"))
    return sorted((name for name in names if RESULT.fullmatch(name)), reverse=True)


def read_result(folder: Path, name: str) -> dict[str, Any]:
    """What is kept beside a result."""
    return json.loads((folder / f"{name}.studio.json").read_text())


def measure_video(path: Path, request: Request) -> dict[str, Any]:
    """Errors of pitch, roll and field of view and of rotation, in degrees, by the estimators that suit the model."""
    from ucpe.evaluation.estimators import EstimatorChoice
    from ucpe.evaluation.inputs import Job as Measured
    from ucpe.evaluation.records import Measuring, measure

    names = ("desk", "desk") if request.model is None else ("colmap", "geocalib")
    try:
        pose, calibrator = EstimatorChoice(names[0]).pose_estimator(), EstimatorChoice(names[1]).calibrator()
        record = measure(Measured(path.stem, path, request.camera), pose, calibrator, Measuring())
    except (ImportError, OSError, ValueError) as error:
        return {"note": f"not measured: {error}"}
    errors: dict[str, Any] = {"note": f"measured by {ESTIMATORS[names[0]]}"}
    metrics = record.metrics("robust")
    errors |= {name: metrics.get(name) for name in ERRORS}
    reasons = [found.reason for found in (record, *record.parts.values()) if found.reason]
    return errors | ({"note": "; ".join(reasons)} if reasons else {})
