"""Poses as NumPy arrays: PanShot .npy and ViPE .npz. Neither ever loads a pickle."""

from __future__ import annotations

import io
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ucpe.files import write_file
from ucpe.reading import MAX_FRAMES, read_array, read_arrays
from ucpe.trajectories.formats.base import OUR_UP, ImageSize, Recording, poses_of_array
from ucpe.trajectories.interpolation import interpolate_poses
from ucpe.trajectories.trajectory import Trajectory


class PanShotArray:
    """Camera-to-world (frames, 3, 4) in a gravity-aligned world with the same axes, in the units of its SLAM.

    Divide by the clip's near-plane depth before use: `trajectory.scaled(1 / near_depth)`.
    """

    name = "panshot"
    description = "PanShot .npy: camera-to-world array (frames, 3, 4)"

    def recognises(self, path: Path) -> bool:
        """Whether the file is a NumPy array of poses."""
        return _starts_with(path, b"\x93NUMPY")

    def read(self, path: Path) -> Recording:
        """Poses of a file. Arrays of shape (frames, 4, 4) are not PanShot's: their up direction is unknown."""
        array = read_array(path)
        return Recording(poses_of_array(path, array), up=OUR_UP if array.shape[1:] == (3, 4) else None)

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write poses (frames, 3, 4) in the trajectory's dtype; lens and frame rate are not kept."""
        if not trajectory.up_known:
            warnings.warn(
                f"{path}: in PanShot's files -y is up, but which way is up in this path is not known: turn it first "
                "(--up +z, --up -y, ... or --level; in Python gravity_aligned)"
            )
        buffer = io.BytesIO()
        np.save(buffer, trajectory.c2w[:, :3].detach().cpu().numpy(), allow_pickle=False)
        write_file(path, buffer.getvalue())


NAMES = ("data", "c2w", "poses", "cam_c2w", "camera_to_world")
"""What camera-to-world poses are called in archives: ViPE's name first."""


class ViPE:
    """`data` (frames, 4, 4) camera-to-world with the same axes, and optionally `inds`, the frame number of each.

    Frames missing between those given are interpolated. `c2w`, `poses`, `cam_c2w` and `camera_to_world`, as others
    call the array, are read too.
    """

    name = "vipe"
    description = "ViPE pose .npz: camera-to-world `data` (frames, 4, 4) and `inds`; also `c2w`, `poses`, `cam_c2w`"

    def recognises(self, path: Path) -> bool:
        """Whether the file is a NumPy archive with an entry of a known name."""
        if not _starts_with(path, b"PK"):
            return False
        try:
            with zipfile.ZipFile(path) as archive:
                return any(f"{name}.npy" in archive.namelist() for name in NAMES)
        except zipfile.BadZipFile:
            return False

    def read(self, path: Path) -> Recording:
        """Poses of a file, one for every frame from the first to the last."""
        poses, frames = read_vipe(path)
        MAX_FRAMES.check(int(frames[-1] - frames[0] + 1), path)
        wanted = torch.arange(int(frames[0]), int(frames[-1]) + 1)
        return Recording(poses if len(wanted) == len(frames) else interpolate_poses(poses, frames, wanted.double()))

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write poses in the trajectory's dtype; lens and frame rate are not kept."""
        buffer = io.BytesIO()
        np.savez(buffer, data=trajectory.c2w.detach().cpu().numpy(), inds=np.arange(len(trajectory)))
        write_file(path, buffer.getvalue())


def read_vipe(path: Path) -> tuple[Tensor, Tensor]:
    """Poses (N, 4, 4) of a ViPE archive and the frame numbers (N,) of these, increasing; both in float64."""
    arrays = read_arrays(path)
    name = next((name for name in NAMES if name in arrays), None)
    if name is None:
        raise ValueError(f"{path}: expected an array `data` of poses, found {', '.join(arrays) or 'nothing'}")
    poses = poses_of_array(path, arrays[name])
    numbers = arrays.get("inds", np.arange(len(poses)))
    if numbers.dtype.kind not in "iuf" or not (np.isfinite(numbers) & (numbers == np.round(numbers))).all():
        raise ValueError(f"{path}: expected `inds` to be whole frame numbers, found {numbers.dtype}")
    frames, order = torch.as_tensor(numbers.astype(np.float64)).sort()
    if not len(poses) or frames.shape != (len(poses),) or not (torch.diff(frames) > 0).all():
        raise ValueError(f"{path}: expected `inds` to be {len(poses)} different frame numbers")
    return poses[order], frames


def _starts_with(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic
