"""Videos to make, from lists and records on disk, and the files that come out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import torch

from ucpe.files import file_fingerprint, fingerprint_of, write_json
from ucpe.generation.defaults import Defaults
from ucpe.generation.loading import find_adapters, find_model
from ucpe.generation.options import Sampling, Setup
from ucpe.generation.setup import split_lora
from ucpe.generation.vocabulary import UnknownWords
from ucpe.lenses.files.native import lens_from_dict
from ucpe.reading import inside, open_image, read_json_object, read_yaml
from ucpe.trajectories import Trajectory
from ucpe.trajectories.formats import is_demo, load_upright
from ucpe.trajectories.formats.captioned import read_released_list
from ucpe.trajectories.rotations import pose_matrix

if TYPE_CHECKING:
    from ucpe.generation.pipeline import CameraPipeline, CameraVideo

KINDS: dict[str, type] = {
    **dict.fromkeys(("prompt", "camera", "image"), str),
    **{name: get_args(kind)[0] for name, kind in get_type_hints(Sampling).items()},
}
"""Fields that an entry of a list may have, and their types."""

WORDS = {str: "text", float: "a number", int: "a whole number"}

WEIGHT_FILES = ("*.safetensors", "*.bin", "*.json")
"""Files of a model by which it is recognised as the same."""


@dataclass(frozen=True)
class Request(Sampling):
    """Everything that decides a video; None leaves a choice to the model's defaults."""

    prompt: str
    camera: Trajectory
    model: str | None = None
    adapter: str | None = None
    image: Path | None = None
    setup: Setup = field(default_factory=Setup)

    def with_defaults(self, defaults: Defaults) -> Request:
        """The request with a model's defaults where it leaves a choice."""
        chosen = {
            name: getattr(defaults, name)
            for name in ("negative", "guidance", "steps", "height", "width")
            if getattr(self, name) is None
        }
        return replace(self, seed=self.seed or 0, **chosen)

    def to_dict(self) -> dict[str, Any]:
        """Plain values that `from_dict` turns back into this request; files are named by their full paths."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("model", "adapter", "image"):
            values[name] = None if values[name] is None else _full_path(str(values[name]))
        loras = [f"{_full_path(source)}:{weight:g}" for source, weight in map(split_lora, self.setup.lora)]
        return {**values, "camera": _camera_to_dict(self.camera), "setup": {**asdict(self.setup), "lora": loras}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Request:
        """The request of plain values."""
        image = None if values.get("image") is None else Path(values["image"])
        setup = Setup.from_dict(values.get("setup", {}))
        return cls(**{**values, "camera": _camera_from_dict(values["camera"]), "image": image, "setup": setup})

    def sources(self) -> str:
        """A short name of the files that the video is made from: weights, LoRAs and first frame."""
        model = find_model(self.model)
        loras = [Path(split_lora(lora)[0]) for lora in self.setup.lora]
        files = [model, *loras, *find_adapters(model, self.adapter), *([] if self.image is None else [self.image])]
        return fingerprint_of([_fingerprint(file) for file in files])


def record_of(request: Request) -> dict[str, Any]:
    """What is kept beside a video, from which it can be made again."""
    import ucpe

    return {"ucpe": ucpe.__version__, "sources": request.sources(), "request": request.to_dict()}


def is_made(path: Path, request: Request) -> bool:
    """Whether a video is there that was made from the same request and the same files."""
    record = path.with_suffix(".json")
    if not path.is_file() or not record.is_file():
        return False
    try:
        there = json.loads(record.read_text())
    except (OSError, ValueError):
        return False
    wanted = json.loads(json.dumps(record_of(request)))
    return isinstance(there, dict) and all(there.get(name) == wanted[name] for name in ("sources", "request"))


def make_video(
    pipe: CameraPipeline,
    request: Request,
    path: Path,
    *,
    preview: bool = False,
    on_step: Callable[[int, int], None] | None = None,
) -> dict[str, Path]:
    """Generate and write `path` (.mp4), its record (.json) and, if asked, its sheet (.png); returns these paths.

    An exception raised by `on_step(done, total)` cancels; nothing is written then. What the model was not trained on is
    said by `checks.check_request`, not here.
    """
    from ucpe.generation.preview import preview_sheet
    from ucpe.video import write_video

    video = _generated(pipe, request, on_step)
    written = {"video": path, "record": path.with_suffix(".json")}
    written["record"].unlink(missing_ok=True)
    write_video(path, video.frames, request.camera.fps)
    if preview:
        written["preview"] = path.with_suffix(".png")
        preview_sheet([video], written["preview"])
    write_json(written["record"], record_of(request))
    return written


def make_video_without_camera(
    pipe: CameraPipeline, request: Request, path: Path, on_step: Callable[[int, int], None] | None = None
) -> None:
    """Write the video that the same request gives if the model is left to itself: what the camera changes."""
    from ucpe.video import write_video

    write_video(path, _generated(pipe, request, on_step, follow_camera=False).frames, request.camera.fps)


def _generated(
    pipe: CameraPipeline,
    request: Request,
    on_step: Callable[[int, int], None] | None = None,
    follow_camera: bool = True,
) -> CameraVideo:
    request = request.with_defaults(pipe.defaults)
    image = None if request.image is None else open_image(request.image)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownWords)
        warnings.filterwarnings("ignore", "a calibration of")  # said when the request was made
        return pipe(
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
            follow_camera=follow_camera,
        ).videos[0]


def read_again(path: Path) -> Request:
    """The request in a record that `make_video` wrote."""
    try:
        return Request.from_dict(read_json_object(path)["request"])
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{path} is not the record of a generated video ({error!r})") from None


def read_list(
    path: Path, frames: int | None = None, fps: float | None = None, up: str | None = None, **shared: Any
) -> list[Request]:
    """Requests of a JSON or YAML list: released demo files, or entries with `prompt` and `camera` (a path file).

    Other keys of an entry (seed, steps, ...) replace those in `shared`. With `frames` every path is resampled to that
    many, played at `fps`; a file of this list's entries is named relative to the list. `up` is up in the worlds of the
    path files (see `Trajectory.load`); of one that does not know, the first camera is level, with a warning.
    """
    if is_demo(path):
        if up is not None:
            raise ValueError(f"{path} is a released demo list, whose cameras know which way is up: leave out --up")
        shots = read_released_list(path)
        return [Request(shot.caption, _resampled(shot.released(), frames, fps), **shared) for shot in shots]
    return [_request(path, index, entry, frames, fps, up, shared) for index, entry in enumerate(_entries(path))]


def _request(
    path: Path,
    index: int,
    entry: dict[str, Any],
    frames: int | None,
    fps: float | None,
    up: str | None,
    shared: dict[str, Any],
) -> Request:
    where = f"{path}, entry {index}"
    if not {"prompt", "camera"} <= set(entry) <= set(KINDS):
        raise ValueError(
            f"{where}: needs prompt and camera, may have {', '.join(list(KINDS)[2:])}; has {', '.join(map(str, entry))}"
        )
    for name, value in entry.items():
        kind = KINDS[name]
        if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise ValueError(f"{where}: {name} must be {WORDS[kind]}, got {str(value)[:60]!r}")
    if not entry["prompt"].strip():
        raise ValueError(f"{where}: the prompt is empty: say what to see")
    files: dict[str, Any] = {
        name: inside(path.parent, entry[name], where) for name in ("camera", "image") if name in entry
    }
    advice = "--up +z, --up -y, ... says which way is up in the worlds of all paths of the list"
    camera = _resampled(load_upright(files.pop("camera"), advice, up), frames, fps)
    return Request(**{**shared, **entry, **files, "camera": camera})


def _resampled(camera: Trajectory, frames: int | None, fps: float | None) -> Trajectory:
    if frames is None or (len(camera), camera.fps) == (frames, fps):
        return camera
    return camera.resample(frames, fps)


def _camera_to_dict(camera: Trajectory) -> dict[str, Any]:
    poses = camera.c2w[:, :3].double().tolist()
    return {"fps": camera.fps, "up_known": camera.up_known, "lens": camera.lens.to_dict(), "c2w": poses}


def _camera_from_dict(values: dict[str, Any]) -> Trajectory:
    rows = torch.tensor(values["c2w"], dtype=torch.float64)
    poses = pose_matrix(rows[:, :, :3], rows[:, :, 3])
    return Trajectory(poses, lens_from_dict(values["lens"]), values["fps"], up_known=values.get("up_known", True))


def _entries(path: Path) -> list[dict[str, Any]]:
    entries = read_yaml(path)
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f"{path} must hold a list of entries, one per video")
    return entries


def _full_path(name: str) -> str:
    """The full path of a file or folder that is there; a hub id as it is."""
    return str(Path(name).resolve()) if Path(name).exists() else name


def _fingerprint(path: Path) -> Any:
    if path.is_dir():
        files = sorted(file for pattern in WEIGHT_FILES for file in path.rglob(pattern))
        return [[str(file.relative_to(path)), file_fingerprint(file)] for file in files]
    return file_fingerprint(path) if path.is_file() else str(path)
