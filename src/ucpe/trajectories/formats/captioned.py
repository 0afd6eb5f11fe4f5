"""Lists of cameras with captions: the paper authors' demo .json files and their PanShot dataset on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ucpe.lenses import UCM
from ucpe.reading import inside, read_json, read_json_lines
from ucpe.trajectories.formats.arrays import PanShotArray
from ucpe.trajectories.formats.base import peek_json
from ucpe.trajectories.formats.realestate10k import RealEstate10K
from ucpe.trajectories.rotations import invert_pose
from ucpe.trajectories.trajectory import DEFAULT_FPS, Trajectory

KINDS = {"video": str, "pose": str, "pose_path": str, "caption": str, "videos": list}
"""Types of the entries that are used as they are."""

RELEASED_FRAMES = 81
"""Poses of a file that the released model takes: the first ones."""

NORMALIZATION_FILE = "traj_normalization.txt"
"""Released file with the factor on RealEstate10K translations."""

NEAR_DEPTH_FILES = "near_plane_depth-*.jsonl"
"""Released files with the near-plane depths of PanShot's clips."""

VIDEO_SUFFIX, POSE_SUFFIX = ".mp4", ".npy"
"""Of PanShot's files, whose names in its lists may lack them."""


@dataclass(frozen=True)
class CaptionedCamera:
    """A caption, the file of its poses, a lens, and what makes the poses' unit the near-plane depth."""

    caption: str
    pose: Path
    lens: UCM
    scale: float | None = None
    """Factor on the file's translations; None if it is not known."""
    video: Path | None = None

    def trajectory(self, frames: int | None = None, fps: float = DEFAULT_FPS) -> Trajectory:
        """The first `frames` cameras (all by default) in units of near-plane depth, as the released model takes them.

        Gravity-aligned poses (.npy) are turned to first yaw 0, others (.txt) are relative to the first camera.
        """
        if self.scale is None:
            raise ValueError(f"{self.pose}: the near-plane depth of this clip is not known; give the near_depths file")
        gravity_aligned = PanShotArray().recognises(self.pose)
        recording = (PanShotArray() if gravity_aligned else RealEstate10K()).read(self.pose)
        c2w = recording.c2w[:frames]
        if not gravity_aligned:
            c2w = invert_pose(c2w[0]) @ c2w
        try:
            trajectory = Trajectory(c2w, self.lens, fps, up_known=gravity_aligned).scaled(self.scale)
        except ValueError as error:
            raise ValueError(f"{self.pose}: {error}") from None
        return trajectory.zero_first_yaw() if gravity_aligned else trajectory

    def released(self) -> Trajectory:
        """The 81 cameras that the released code makes of this entry."""
        return self.trajectory(RELEASED_FRAMES)


def read_near_depths(path: str | Path) -> dict[str, float]:
    """Near-plane depth of every clip ("video_id-clip_id") of a near_plane_depth .jsonl file."""
    depths = {}
    for where, entry in read_json_lines(path):
        _require(entry, ("video_id", "clip_id", "near_depth"), where)
        depth = entry["near_depth"]
        if not isinstance(depth, int | float) or not 0 < depth < math.inf:
            raise ValueError(f"{where}: expected near_depth above 0, found {depth!r}")
        depths[f"{entry['video_id']}-{entry['clip_id']}"] = float(depth)
    return depths


def clip_of_pose_file(path: str | Path) -> str:
    """Clip "video_id-clip_id" of a pose file named video_id-clip_id-match-variant.

    >>> clip_of_pose_file("aQVLCO-OOqM-11-1-no_rot_aug_0.npy")
    'aQVLCO-OOqM-11'
    """
    return Path(path).stem.rsplit("-", 2)[0]


def is_demo(path: Path) -> bool:
    """Whether a file is a list of cameras with captions."""
    content = peek_json(path)
    return isinstance(content, list) and bool(content) and isinstance(content[0], dict) and "pose_path" in content[0]


def read_demo(
    path: str | Path,
    folders: Sequence[str | Path] = (),
    near_depths: Mapping[str, float] | None = None,
    realestate_scale: float = 1.0,
) -> list[CaptionedCamera]:
    """Cameras of a released demo .json: a list of {pose_path, x_fov, xi, caption}.

    Pose files are looked for as written, next to the .json and in `folders`, by path or by name. `near_depths` (of
    `read_near_depths`) scales PanShot poses; RealEstate10K translations are multiplied by `realestate_scale`.
    """
    path = Path(path)
    entries = read_json(path)
    if not isinstance(entries, list):
        raise ValueError(f"{path}: expected a list of cameras, found {type(entries).__name__}")
    cameras = []
    for index, entry in enumerate(entries):
        where = f"{path}, entry {index}"
        _require(entry, ("pose_path", "x_fov", "xi", "caption"), where)
        pose = _find_pose(entry["pose_path"], [Path("."), path.parent, *map(Path, folders)], where)
        if pose.suffix == ".npy":
            depth = (near_depths or {}).get(clip_of_pose_file(pose))
            scale = None if depth is None else 1 / depth
        else:
            scale = realestate_scale
        cameras.append(CaptionedCamera(entry["caption"], pose, _lens(entry, where), scale))
    return cameras


def read_released_list(path: str | Path) -> list[CaptionedCamera]:
    """Cameras of a released demo .json with their scales, in the authors' checkout or with the files beside it.

    Poses, near-plane depths and the factor on RealEstate10K translations are looked for in the folder of the list, in
    the folder above (the root of the checkout, with all of `data`) and in the current one.
    """
    path = Path(path)
    roots = list(dict.fromkeys(folder.resolve() for folder in (path.parent, path.absolute().parent.parent, Path("."))))
    beside = [folder for folder in sorted(path.absolute().parent.parent.iterdir()) if folder.is_dir()]
    depths: dict[str, float] = {}
    for file in _found_below(roots, NEAR_DEPTH_FILES):
        depths |= read_near_depths(file)
    factors = {file: read_normalization(file) for file in _found_below(roots, NORMALIZATION_FILE)}
    if len(set(factors.values())) > 1:
        raise ValueError(f"{path}: which factor is meant? {', '.join(f'{f}: {v:g}' for f, v in factors.items())}")
    cameras = read_demo(path, [*roots, *beside], depths, next(iter(factors.values()), 1.0))
    for index, camera in enumerate(cameras):
        if camera.scale is None:
            raise ValueError(
                f"{path}, entry {index}: no {NEAR_DEPTH_FILES} in {_listed(roots)} has the near-plane depth of "
                f"the clip {clip_of_pose_file(camera.pose)}"
            )
        if camera.pose.suffix != POSE_SUFFIX and not factors:
            raise ValueError(
                f"{path}, entry {index}: the scale of RealEstate10K paths needs a {NORMALIZATION_FILE}, and there is "
                f"none in {_listed(roots)}"
            )
    return cameras


def read_normalization(path: str | Path) -> float:
    """The factor in a released traj_normalization.txt."""
    try:
        factor = float(Path(path).read_text().split()[0])
    except (ValueError, IndexError):
        factor = 0.0
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"{path}: expected one positive number, the factor on RealEstate10K translations")
    return factor


def read_panshot(root: str | Path, split: str) -> list[CaptionedCamera]:
    """Clips of the PanShot dataset on disk, under a folder that holds `PanShot` and `PanFlow`.

    Meta files list matches, each with `videos: [{video, pose, x_fov, xi}]`, or without where the clip was too short;
    names are written with or without their suffixes. Captions come from captioned-{split}.jsonl,
    near-plane depths from near_plane_depth-{split}.jsonl. Clips without a caption are not listed.
    """
    root = Path(root)
    folder = root / "PanShot"
    metas = sorted((folder / f"meta-{split}").glob("*.json"))
    if not metas:
        raise ValueError(f"no PanShot split {split!r}: {folder / f'meta-{split}'} holds no .json files")
    captions = {}
    for where, entry in read_json_lines(folder / f"captioned-{split}.jsonl"):
        _require(entry, ("video", "caption"), where)
        captions[_with_suffix(entry["video"], VIDEO_SUFFIX)] = entry["caption"]
    depths = read_near_depths(root / "PanFlow" / f"near_plane_depth-{split}.jsonl")
    cameras = []
    for meta in metas:
        content = read_json(meta)
        for match_index, match in enumerate(content if isinstance(content, list) else [content]):
            videos = match.get("videos", []) if isinstance(match, dict) else None
            if not isinstance(videos, list):
                raise ValueError(f"{meta}, match {match_index}: expected an object whose videos, if any, are a list")
            for video_index, entry in enumerate(videos):
                where = f"{meta}, match {match_index}, video {video_index}"
                _require(entry, ("video", "pose", "x_fov", "xi"), where)
                video = folder / f"videos-{split}" / _with_suffix(entry["video"], VIDEO_SUFFIX)
                if video.name not in captions:
                    continue
                written = str(Path(entry["pose"]).parent / _with_suffix(entry["pose"], POSE_SUFFIX))
                pose = _find_pose(written, [folder / f"pose-{split}", folder, root], where)
                depth = depths.get(clip_of_pose_file(pose))
                scale = None if depth is None else 1 / depth
                cameras.append(CaptionedCamera(captions[video.name], pose, _lens(entry, where), scale, video))
    return cameras


def _lens(entry: dict[str, Any], where: str) -> UCM:
    try:
        return UCM(xfov=float(entry["x_fov"]), xi=float(entry["xi"]))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{where}: {error}") from None


def _with_suffix(written: str, suffix: str) -> str:
    """The name of a file that may be written without its suffix; "xi2.00" does not end in one."""
    name = Path(written).name
    return name if name.endswith(suffix) else name + suffix


def _find_pose(written: str, folders: Sequence[Path], where: str) -> Path:
    name = Path(written).name
    candidates = [written, name] if not Path(written).is_absolute() else [name]
    for folder in folders:
        for candidate in candidates:
            if (pose := inside(folder, candidate, where)).is_file():
                return pose
    raise ValueError(f"{where}: pose file {written} is in none of {_listed(folders)}")


def _found_below(folders: Sequence[Path], pattern: str) -> list[Path]:
    """Files of a name in the first folder that has any: in it, one below, or in `data` as in the released checkout."""
    places = ("", "*/", "data/*/", "data/*/*/")
    found = ([file for place in places for file in sorted(folder.glob(place + pattern))] for folder in folders)
    return next(filter(None, found), [])


def _listed(folders: Sequence[Path]) -> str:
    return ", ".join(str(folder) for folder in folders)


def _require(entry: Any, keys: Sequence[str], where: str) -> None:
    missing = [key for key in keys if not isinstance(entry, dict) or key not in entry]
    if missing:
        raise ValueError(f"{where}: expected the keys {', '.join(keys)}; missing {', '.join(missing)}")
    for key in keys:
        kind = KINDS.get(key, object)
        if not isinstance(entry[key], kind):
            raise ValueError(f"{where}: {key}: expected a {kind.__name__}, found {str(entry[key])[:60]}")
