"""Videos to make, from lists and records on disk, and the files that come out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ucpe.files import atomic_file
from ucpe.lenses.files import lens_from_dict
from ucpe.trajectories import Trajectory
from ucpe.trajectories.formats import read_demo

if TYPE_CHECKING:
    from ucpe.generation.pipeline import CameraPipeline


@dataclass(frozen=True)
class Request:
    """Everything that decides a video; None leaves a choice to the model's defaults."""

    prompt: str
    camera: Trajectory
    model: str | None = None
    adapter: str | None = None
    image: Path | None = None
    negative: str | None = None
    guidance: float | None = None
    steps: int | None = None
    seed: int = 0
    height: int | None = None
    width: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `from_dict` turns back into this request."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        image = None if self.image is None else str(self.image)
        return {**values, "camera": _camera_to_dict(self.camera), "image": image}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Request:
        """The request of plain values."""
        image = None if values.get("image") is None else Path(values["image"])
        return cls(**{**values, "camera": _camera_from_dict(values["camera"]), "image": image})


def make_video(
    pipe: CameraPipeline,
    request: Request,
    path: Path,
    *,
    preview: bool = False,
    on_step: Callable[[int, int], None] | None = None,
) -> dict[str, Path]:
    """Generate and write `path` (.mp4), its record (.json) and, if asked, its sheet (.png); returns these paths."""
    import ucpe
    from ucpe.generation.preview import preview_sheet
    from ucpe.video import write_video

    image = None if request.image is None else _open_image(request.image)
    video = pipe(
        request.prompt,
        request.camera,
        image=image,
        negative_prompt=request.negative,
        height=request.height,
        width=request.width,
        num_inference_steps=request.steps,
        guidance_scale=request.guidance,
        seed=request.seed,
        on_step=on_step,
    ).videos[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_video(path, video.frames, request.camera.fps)
    written = {"video": path, "record": path.with_suffix(".json")}
    record = {"ucpe": ucpe.__version__, "request": request.to_dict()}
    with atomic_file(written["record"]) as file:
        file.write_text(json.dumps(record, indent=1))
    if preview:
        written["preview"] = path.with_suffix(".png")
        preview_sheet([video], written["preview"])
    return written


def read_again(path: Path) -> Request:
    """The request in a record that `make_video` wrote."""
    try:
        return Request.from_dict(json.loads(path.read_text())["request"])
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not the record of a generated video ({error!r})") from None


def read_list(path: Path, **shared: Any) -> list[Request]:
    """Requests of a JSON or YAML list: released demo files, or entries with `prompt` and `camera` (a path file).

    Other keys of an entry (seed, steps, ...) replace those in `shared`.
    """
    entries = _entries(path)
    if entries and "pose_path" in entries[0]:
        return [Request(prompt=shot.caption, camera=shot.trajectory(), **shared) for shot in read_demo(path)]
    requests = []
    for index, entry in enumerate(entries):
        unknown = set(entry) - set(Request.__dataclass_fields__)
        if unknown or "prompt" not in entry or "camera" not in entry:
            raise ValueError(
                f"{path}, entry {index}: needs prompt and camera, may have {', '.join(Request.__dataclass_fields__)}; "
                f"has {', '.join(entry)}"
            )
        camera = Trajectory.load(path.parent / entry["camera"])
        requests.append(Request(**{**shared, **entry, "camera": camera}))
    return requests


def _camera_to_dict(camera: Trajectory) -> dict[str, Any]:
    return {"fps": camera.fps, "lens": camera.lens.to_dict(), "c2w": camera.c2w[:, :3].double().tolist()}


def _camera_from_dict(values: dict[str, Any]) -> Trajectory:
    rows = torch.tensor(values["c2w"], dtype=torch.float64)
    last = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=torch.float64).expand(len(rows), 1, 4)
    return Trajectory(torch.cat([rows, last], dim=1), lens_from_dict(values["lens"]), values["fps"])


def _entries(path: Path) -> list[dict[str, Any]]:
    import yaml

    entries = yaml.safe_load(path.read_text())
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path} must hold a list of entries, one per video")
    return entries


def _open_image(path: Path) -> Any:
    from PIL import Image

    return Image.open(path).convert("RGB")
