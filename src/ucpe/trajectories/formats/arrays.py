"""Poses as NumPy arrays: PanShot .npy and ViPE .npz. Neither ever loads a pickle."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import torch

from ucpe.trajectories.formats.base import ImageSize, Recording, poses_of_array, write_atomically
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
        """Poses of a file."""
        try:
            array = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path}: not a plain NumPy array ({error})") from None
        return Recording(poses_of_array(path, array))

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write poses (frames, 3, 4) in the trajectory's dtype; lens and frame rate are not kept."""
        buffer = io.BytesIO()
        np.save(buffer, trajectory.c2w[:, :3].detach().cpu().numpy(), allow_pickle=False)
        write_atomically(path, buffer.getvalue())


class ViPE:
    """`data` (frames, 4, 4) camera-to-world with the same axes, and optionally `inds`, the frame number of each.

    Frames missing between those given are interpolated.
    """

    name = "vipe"
    description = "ViPE pose .npz: camera-to-world `data` (frames, 4, 4) and `inds`"

    def recognises(self, path: Path) -> bool:
        """Whether the file is a NumPy archive with an entry `data`."""
        if not _starts_with(path, b"PK"):
            return False
        try:
            with zipfile.ZipFile(path) as archive:
                return "data.npy" in archive.namelist()
        except zipfile.BadZipFile:
            return False

    def read(self, path: Path) -> Recording:
        """Poses of a file, one for every frame from the first to the last."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                data = archive["data"]
                frames = torch.as_tensor(archive["inds"]).double() if "inds" in archive else None
        except (KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path}: not a ViPE archive with a plain array `data` ({error})") from None
        poses = poses_of_array(path, data)
        if frames is None:
            return Recording(poses)
        if frames.shape != (len(poses),) or not (torch.diff(frames) > 0).all():
            raise ValueError(f"{path}: expected `inds` to be {len(poses)} increasing frame numbers")
        return Recording(interpolate_poses(poses, frames, torch.arange(int(frames[0]), int(frames[-1]) + 1).double()))

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write poses in the trajectory's dtype; lens and frame rate are not kept."""
        buffer = io.BytesIO()
        np.savez(buffer, data=trajectory.c2w.detach().cpu().numpy(), inds=np.arange(len(trajectory)))
        write_atomically(path, buffer.getvalue())


def _starts_with(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(magic)) == magic
