"""transforms.json of nerfstudio, instant-ngp and Blender."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ucpe.files import write_file
from ucpe.lenses.base import Lens, stack_lenses
from ucpe.lenses.files.document import Section, batch_entry, calibration
from ucpe.lenses.fisheye import KannalaBrandt
from ucpe.lenses.panoramic import Equirectangular
from ucpe.lenses.pinhole import BrownConrady, Pinhole

MODELS: dict[str, tuple[Any, str]] = {
    "PINHOLE": (Pinhole, ""),
    "SIMPLE_PINHOLE": (Pinhole, ""),
    "OPENCV": (BrownConrady, "k1 k2 k3 p1 p2"),
    "OPENCV_FISHEYE": (KannalaBrandt, "k1 k2 k3 k4"),
    "EQUIRECTANGULAR": (Equirectangular, ""),
}
INTRINSICS = ("fl_x", "fl_y", "cx", "cy", "camera_angle_x", "k1", "k2", "k3", "k4", "p1", "p2", "is_fisheye")


class Transforms:
    """`camera_model`, `fl_x`, `fl_y`, `cx`, `cy`, `w`, `h`, `k1` ..., for all frames or in each frame.

    Intrinsics that differ between frames make a lens with one batch entry per frame, in the order of the file. The
    centre of pixel (0, 0) is at (0.5, 0.5), as here: nothing is converted.
    """

    name = "transforms"
    description = "nerfstudio, instant-ngp and Blender transforms.json"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        return "fl_x" in data or "camera_angle_x" in data or isinstance(data.get("frames"), list)

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of all frames, or of the frame with number `camera`."""
        lens = lens_from_transforms(content.data, content.file)
        return batch_entry(lens, camera, content.file)

    def write(self, lens: Lens, path: Path, height: int, width: int) -> None:
        """Write the intrinsics of a lens, with no frames."""
        write_file(path, json.dumps({**lens_to_transforms(lens, height, width), "frames": []}, indent=2) + "\n")


def lens_from_transforms(data: dict[str, Any], file: str = "transforms.json") -> Lens:
    """The lens of a parsed transforms.json; batch shape (frames,) where intrinsics differ between frames."""
    shared = {key: value for key, value in data.items() if key != "frames"}
    frames = data.get("frames") or []
    if not isinstance(frames, list) or not all(isinstance(frame, dict) for frame in frames):
        raise ValueError(f"{file}: frames: expected a list of mappings")
    if not any(key in frame for frame in frames for key in (*INTRINSICS, "w", "h", "camera_model")):
        return _lens(Section(shared, file))
    lenses = [_lens(Section({**shared, **frame}, file, f"frames[{i}].")) for i, frame in enumerate(frames)]
    first = lenses[0]
    for index, lens in enumerate(lenses):
        if type(lens) is not type(first) or lens.settings != first.settings:
            raise ValueError(
                f"{file}: frames[{index}]: expected the camera model and size of frame 0, {first}; got {lens}"
            )
    return first if all(lens == first for lens in lenses) else stack_lenses(lenses)


def lens_to_transforms(lens: Lens, height: int, width: int) -> dict[str, Any]:
    """The keys that describe a lens without a batch in a transforms.json."""
    model = next((name for name, (constructor, _) in MODELS.items() if type(lens) is constructor), None)
    if model is None:
        raise ValueError(f"transforms.json has no {lens.kind}: fit the lens to kannala_brandt first")
    if model == "EQUIRECTANGULAR":
        return {"camera_model": model, "w": width, "h": height}
    values = calibration(lens, height, width)
    kept = ("fx", "fy", "cx", "cy", *MODELS[model][1].split())
    unkept = [name for name, value in values.items() if name not in kept and value]
    if unkept:
        raise ValueError(f"transforms.json has no {', '.join(unkept)}, which this lens needs")
    names = {"fx": "fl_x", "fy": "fl_y"}
    size = {"camera_model": model, "w": width, "h": height}
    return {**size, **{names.get(name, name): values[name] for name in kept}}


def _lens(entry: Section) -> Lens:
    distortion = [name for name in ("k1", "k2", "k3", "k4", "p1", "p2") if name in entry and entry.number(name)]
    fisheye = entry.flag("is_fisheye")  # instant-ngp
    usual = "OPENCV_FISHEYE" if fisheye else "OPENCV" if distortion else "PINHOLE"
    model = entry.one_of("camera_model", MODELS, usual)
    constructor, names = MODELS[model]
    if fisheye and constructor is not KannalaBrandt:
        raise entry.error("is_fisheye", f"expected camera_model OPENCV_FISHEYE with it, got {model}")
    if constructor is Equirectangular:
        return Equirectangular()
    unknown = [name for name in distortion if name not in names.split()]
    if unknown and constructor is not Pinhole:
        raise entry.error(unknown[0], f"expected zero: {model} has {names} here")
    if constructor is Pinhole and distortion:
        raise entry.error(distortion[0], f"expected no distortion with camera_model {model}; is it OPENCV?")
    values = {name: entry.number(name) for name in names.split() if name in entry}
    if "fl_x" not in entry and "camera_angle_x" in entry:
        return constructor(xfov=math.degrees(entry.number("camera_angle_x")), **values)
    fx, width, height = entry.number("fl_x"), entry.whole("w"), entry.whole("h")
    centre = {"cx": entry.number("cx", width / 2), "cy": entry.number("cy", height / 2)}
    try:
        return constructor(fx=fx, fy=entry.number("fl_y", fx), **centre, width=width, height=height, **values)
    except ValueError as error:
        raise ValueError(f"{entry.file}: {entry.prefix}{error}") from None
