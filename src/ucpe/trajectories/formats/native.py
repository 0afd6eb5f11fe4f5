"""This project's own trajectory files: everything a `Trajectory` holds, as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from ucpe.files import write_file
from ucpe.lenses import Lens
from ucpe.lenses.files.native import lens_from_dict
from ucpe.reading import read_json
from ucpe.trajectories.formats.base import (
    OUR_UP,
    ImageSize,
    Recording,
    frame_rate_of_json,
    peek_json,
    poses_of_array,
)
from ucpe.trajectories.trajectory import Trajectory

FORMAT = "ucpe-trajectory"
VERSION = 1


class Native:
    """A JSON object: `c2w` (frames of 3 x 4 camera-to-world), `fps`, `up_known`, and `lens`, which may be per frame.

    The record that `ucpe generate` writes beside a video holds such an object, and is read too.
    """

    name = "ucpe"
    description = "our own .json: poses, frame rate and the lens of every frame; also the record of a generated video"

    def recognises(self, path: Path) -> bool:
        """Whether the file is a JSON object that says so."""
        content = peek_json(path)
        return isinstance(content, dict) and (content.get("format") == FORMAT or _is_record(content))

    def read(self, path: Path) -> Recording:
        """Poses, lens and frame rate of a file."""
        content = read_json(path)
        content = content["request"]["camera"] if _is_record(content) else content
        if not isinstance(content, dict):
            raise ValueError(f"{path}: expected a JSON object with c2w, fps and lens")
        missing = [key for key in ("c2w", "fps", "lens") if key not in content]
        if missing:
            raise ValueError(f"{path}: expected the keys c2w, fps and lens; missing {', '.join(missing)}")
        version = content.get("version", VERSION)
        if not isinstance(version, int):
            raise ValueError(f"{path}: expected version as a whole number, found {version!r}")
        if version > VERSION:
            raise ValueError(f"{path}: version {version} is newer than this software reads ({VERSION})")
        fps = frame_rate_of_json(path, content["fps"])
        try:
            c2w = torch.tensor(content["c2w"], dtype=torch.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: expected c2w as frames of 3 rows of 4 numbers ({error})") from None
        known = content.get("up_known", True)
        if not isinstance(known, bool):
            raise ValueError(f"{path}: expected up_known as true or false, found {known!r}")
        lens = _lens_from_dict(path, content["lens"])
        return Recording(poses_of_array(path, c2w), lens, fps, OUR_UP if known else None)

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write everything; float64 reads back bit for bit."""
        poses = [json.dumps(pose) for pose in trajectory.c2w[:, :3].double().tolist()]
        head = {"format": FORMAT, "version": VERSION, "fps": trajectory.fps, "up_known": trajectory.up_known}
        head["lens"] = trajectory.lens.to_dict()
        text = json.dumps(head, indent=1)[:-2] + ',\n "c2w": [\n  ' + ",\n  ".join(poses) + "\n ]\n}\n"
        write_file(path, text)


def _is_record(content: object) -> bool:
    """Whether a file's content is the record of a generated video, which knows its camera."""
    request = content.get("request") if isinstance(content, dict) else None
    return isinstance(request, dict) and "camera" in request


def _lens_from_dict(path: Path, description: dict[str, Any]) -> Lens:
    try:
        return lens_from_dict(description)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}, lens: {error}") from None
