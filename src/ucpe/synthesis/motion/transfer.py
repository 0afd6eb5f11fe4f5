"""Rotations of a matched motion in a panorama's frame, and the sources that `ucpe synthesize` films them in."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import torch
from torch import Tensor

from ucpe.files import atomic_file, file_fingerprint, fingerprint_of, safe_name, write_file
from ucpe.reading import inside
from ucpe.synthesis.rows import CURATED, CURATED_FOLDER, MATCHES, part_files, poses_of_row, read_part, rows_with
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_about


def transfer_rotations(
    erp: Tensor,  # (N, 4, 4)
    motion: Trajectory,  # N frames, gravity-aligned
    yaw: float,
) -> Tensor:
    """Rotations (N, 3, 3), camera to panorama, of a motion turned by `yaw` degrees about the vertical.

    In the world the camera then looks as the aligned motion does, however the panorama itself turns:
    R_erp R = R_yaw R_motion, and its poses are [R_erp R | t_erp].
    """
    if len(erp) != len(motion):
        raise ValueError(f"a motion of {len(motion)} frames does not fit {len(erp)} frames of a panorama: resample it")
    turn = rotation_about(1, torch.deg2rad(torch.tensor(float(yaw), dtype=torch.float64)))
    return erp[:, :3, :3].double().mT @ turn @ motion.rotations.double()


def matched_sources(matches: Path, split: str) -> Path:
    """The .jsonl of sources that `ucpe synthesize` films for a split; written beside the matches if missing."""
    home = (parquet.read_schema(matches).metadata or {}).get(CURATED_FOLDER)
    if home is None:
        raise ValueError(f"{matches}: does not say where its clips are; write it again with `ucpe match`")
    curated = inside(matches.parent, home.decode(), matches)
    folder = matches.with_suffix(".sources")
    fingerprint = fingerprint_of(*map(file_fingerprint, [matches, *part_files(curated)]))
    if not (folder / fingerprint).is_file():
        write_sources(matches, curated, folder)
        write_file(folder / fingerprint, "")
    if not (folder / f"{split}.jsonl").is_file():
        raise ValueError(f"{matches}: no match is in the {split} split")
    return folder / f"{split}.jsonl"


def write_sources(matches: Path, curated: Path, folder: Path) -> dict[str, int]:
    """Write sources for `ucpe synthesize` from matches and their clips; return how many clips each split has.

    `train.jsonl` and `test.jsonl` have one line per clip, whose poses are in `poses/` and rotations in `rotations/`.
    """
    folder = Path(folder)
    for old in ("train.jsonl", "test.jsonl"):
        (folder / old).unlink(missing_ok=True)
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in part_files(matches):
        for row in read_part(file, MATCHES).to_pylist():
            rows[row["clip"]].append(row)
    lines: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for part in part_files(curated):
        table = rows_with(part, CURATED, "id", rows)
        for index, clip in enumerate(table.drop_columns(["c2w"]).to_pylist()):
            own = rows.pop(clip["id"])
            line = _write_source(folder, part, clip, poses_of_row(table["c2w"], index), own)
            lines[own[0]["split"]].append((clip["id"], line))
    if rows:
        raise ValueError(f"{curated}: no clip {next(iter(rows))!r}, which {matches} names; was it curated again?")
    for split, entries in lines.items():
        write_file(folder / f"{split}.jsonl", "".join(f"{line}\n" for _, line in sorted(entries)).encode())
    return {split: len(entries) for split, entries in sorted(lines.items())}


def _write_source(folder: Path, part: Path, clip: dict[str, Any], c2w: Tensor, matches: list[dict[str, Any]]) -> str:
    """Write the files of one clip; return its line of the sources file."""
    if not clip["video"]:
        raise ValueError(f"{part}: clip {clip['id']!r} names no video to film")
    name = safe_name(clip["id"])
    poses = Path("poses") / f"{name}.npy"
    _write_array(folder / poses, c2w[:, :3].float().numpy())
    rotations = []
    for match in matches:
        file = Path("rotations") / f"{safe_name(clip['id'] + '--' + match['motion'])}.npy"
        array = np.asarray(match["rotations"], np.float32).reshape(-1, 3, 3)
        _write_array(folder / file, np.concatenate([array, np.zeros((len(array), 3, 1), np.float32)], 2))
        rotations.append(file.as_posix())
    return json.dumps(
        {
            "video": _link(folder, inside(part.parent, clip["video"], part), name).as_posix(),
            "poses": poses.as_posix(),
            "near_depth": 1.0,
            "rotations": rotations,
            "start": 0,
            "categories": clip["categories"],
            "scores": {key: clip[key] for key in ("quality", "watermark", "rotation_score", "motion_magnitude")},
        }
    )


def _link(folder: Path, video: Path, name: str) -> Path:
    """Link to a video from inside the folder, as sources may not name files outside; return the link, relative."""
    link = Path("videos") / name / video.name
    (folder / link).parent.mkdir(parents=True, exist_ok=True)
    (folder / link).unlink(missing_ok=True)
    (folder / link).symlink_to(os.path.relpath(video.resolve(), (folder / link).parent.resolve()))
    return link


def _write_array(path: Path, array: np.ndarray) -> None:
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)
