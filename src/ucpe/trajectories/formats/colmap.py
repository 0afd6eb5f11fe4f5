"""COLMAP reconstructions: cameras and images, text and binary."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ucpe.files import write_file
from ucpe.lenses import Lens, stack_lenses
from ucpe.lenses.files.colmap import read_cameras, write_cameras
from ucpe.reading import read_lines
from ucpe.trajectories.formats.base import (
    ImageSize,
    Recording,
    first_rows,
    image_size_of,
    natural_order,
    number,
    parse_numbers,
)
from ucpe.trajectories.rotations import (
    invert_pose,
    pose_matrix,
    quaternion_from_rotation,
    rotation_from_quaternion,
)
from ucpe.trajectories.trajectory import Trajectory

FOLDERS = ("", "sparse/0", "0")
"""Where, inside a given folder, a reconstruction is looked for."""


class Image(NamedTuple):
    """One registered image: world-to-camera quaternion (w, x, y, z) and translation."""

    name: str
    camera: int
    quaternion: Sequence[float]
    translation: Sequence[float]


class Colmap:
    """A folder with cameras and images (.txt or .bin), or the images file in it.

    Converted from world-to-camera quaternions and translations with the same camera axes, by inversion. Images are
    put in the order of their names; several cameras of one model become a lens per frame.
    """

    name = "colmap"
    description = "COLMAP reconstruction: a folder with cameras and images, .txt or .bin (written as .txt)"

    def recognises(self, path: Path) -> bool:
        """Whether the path is such a folder, or an images file with ten words a line or a binary header."""
        if path.is_dir():
            return _images_file(path) is not None
        if path.suffix == ".bin":
            return path.name == "images.bin"
        rows = [row.split() for row in first_rows(path)]
        return (
            bool(rows)
            and len(rows[0]) >= 10
            and len(parse_numbers(" ".join(rows[0][:9])) or []) == 9
            and parse_numbers(rows[0][9]) is None
        )

    def read(self, path: Path) -> Recording:
        """Poses and lens of a reconstruction."""
        file = _images_file(path) if path.is_dir() else path
        if file is None:
            raise ValueError(f"{path}: expected a folder with images.txt or images.bin")
        images = _binary_images(file) if file.suffix == ".bin" else _text_images(file)
        if not images:
            raise ValueError(f"{file} holds no image")
        images.sort(key=lambda image: natural_order(image.name))
        quaternions = torch.tensor([image.quaternion for image in images], dtype=torch.float64)
        translations = torch.tensor([image.translation for image in images], dtype=torch.float64)
        w2c = pose_matrix(rotation_from_quaternion(quaternions), translations)
        return Recording(invert_pose(w2c), _lens(file.parent, [image.camera for image in images]))

    def write(self, trajectory: Trajectory, path: Path, size: ImageSize) -> None:
        """Write cameras.txt (a camera per frame if the lens changes), images.txt and an empty points3D.txt."""
        lens = trajectory.lens
        size = image_size_of(lens, size)
        path.mkdir(parents=True, exist_ok=True)
        lenses = [lens[frame] for frame in range(len(trajectory))] if lens.batch_shape else [lens]
        write_cameras(lenses, path / "cameras.txt", size.height, size.width)
        w2c = invert_pose(trajectory.c2w.double())
        values = torch.cat([quaternion_from_rotation(w2c[:, :3, :3]), w2c[:, :3, 3]], -1).tolist()
        lines = ["# IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME", "# POINTS2D[] as (X, Y, POINT3D_ID)"]
        for index, row in enumerate(values):
            camera = index + 1 if lens.batch_shape else 1
            lines += [f"{index + 1} {' '.join(map(number, row))} {camera} frame_{index:05d}.png", ""]
        write_file(path / "images.txt", "\n".join(lines) + "\n")
        write_file(path / "points3D.txt", "# POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[]\n")


def _images_file(folder: Path) -> Path | None:
    candidates = (folder / inner / name for inner in FOLDERS for name in ("images.bin", "images.txt"))
    return next((file for file in candidates if file.is_file()), None)


def _lens(folder: Path, cameras: Sequence[int]) -> Lens | None:
    if not any((folder / name).is_file() for name in ("cameras.bin", "cameras.txt")):
        return None
    lenses = read_cameras(folder)
    unknown = sorted(set(cameras) - set(lenses))
    if unknown:
        raise ValueError(f"{folder}: images refer to camera {unknown[0]}, but cameras are {sorted(lenses)}")
    used = [lenses[camera] for camera in cameras]
    first = used[0]
    if all(lens is first for lens in used):
        return first
    if any(type(lens) is not type(first) or lens.settings != first.settings for lens in used):
        raise ValueError(
            f"{folder}: frames of one trajectory need cameras of one model and size, got {set(map(str, used))}"
        )
    return stack_lenses(used)


def _text_images(path: Path) -> list[Image]:
    images = []
    lines = read_lines(path)
    index = 0
    while index < len(lines):
        text, line = lines[index], index + 1
        index += 1
        if not text.strip() or text.startswith("#"):
            continue
        words = text.split(maxsplit=9)
        numbers = parse_numbers(" ".join(words[:9]))
        if numbers is None or len(numbers) != 9 or len(words) != 10:
            raise ValueError(
                f"{path}, line {line}: expected ID QW QX QY QZ TX TY TZ CAMERA_ID NAME, found {text.strip()[:50]!r}"
            )
        _check_quaternion(numbers[1:5], f"{path}, line {line}")
        images.append(Image(words[9].strip(), int(numbers[8]), numbers[1:5], numbers[5:8]))
        points = parse_numbers(lines[index]) if index < len(lines) else []
        if points is None or len(points) % 3:
            raise ValueError(
                f"{path}, line {index + 1}: expected the points of the image above (X Y POINT3D_ID each), or an empty "
                f"line if it has none, found {lines[index].strip()[:50]!r}"
            )
        index += 1
    return images


def _binary_images(path: Path) -> list[Image]:
    data, images = path.read_bytes(), []
    try:
        (count,) = struct.unpack_from("<Q", data)
        position = 8
        for entry in range(count):
            _, *pose, camera = struct.unpack_from("<I7dI", data, position)
            end = data.index(b"\0", position + 64)
            name = data[position + 64 : end].decode("utf-8")
            (points,) = struct.unpack_from("<Q", data, end + 1)
            position = end + 9 + 24 * points
            _check_quaternion(pose[:4], f"{path}, image {entry + 1} of {count}")
            images.append(Image(name, camera, pose[:4], pose[4:]))
    except (struct.error, ValueError) as error:
        if "quaternion" in str(error):
            raise
        raise ValueError(f"{path}: expected a COLMAP images.bin, but it ends after {len(data)} bytes") from None
    return images


def _check_quaternion(quaternion: Sequence[float], where: str) -> None:
    if not abs(sum(value * value for value in quaternion) - 1) < 0.02:
        raise ValueError(f"{where}: expected a quaternion of length 1, found {list(quaternion)}")
