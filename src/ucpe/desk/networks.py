"""The small networks of the desk estimators."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ucpe.desk import HEIGHT, WIDTH
from ucpe.lenses import Lens
from ucpe.lenses.base import pixel_grid
from ucpe.trajectories.rotations import nearest_rotation, rotation_exp

XFOV_CENTRE, XFOV_SPREAD, XI_SPREAD = 140.0, 35.0, 0.8
"""Offsets and units (degrees, xi) in which the field of view and distortion are regressed."""

CORRECTION_UNIT, TRANSLATION_UNIT = 0.5, 0.1
"""Degrees and near-plane depths in which the correction of the rotation and the translation are regressed."""

FLOW_ENLARGED = 3
"""Factor by which frames are enlarged for optical flow."""

MIN_RESIDUAL = 0.004
"""Angle in radians by which rays may disagree before they count less."""

PARALLAX_GAIN = 20.0
"""Factor on what the rotation leaves unexplained, as the network sees it."""


class RayMotion(NamedTuple):
    """How rays moved between two frames."""

    rotation: Tensor  # (B, 3, 3) from the second camera's frame to the first's
    planes: Tensor  # (B, 8, HEIGHT // 4, WIDTH // 4): unexplained motion (3), rays (3), seen, agreement


class DeskCalibrator(nn.Module):
    """Frame -> up direction in the camera frame, horizontal field of view and xi of a UCM lens."""

    def __init__(self, width: int = 24):
        super().__init__()
        self.features = nn.Sequential(
            _convolution(6, width, stride=2),
            _convolution(width, 2 * width, stride=2),
            Residual(2 * width),
            _convolution(2 * width, 4 * width, stride=2),
            Residual(4 * width),
            _convolution(4 * width, 3 * width, stride=2),
            nn.Conv2d(3 * width, 16, 1),
        )
        self.head = nn.Sequential(nn.Linear(16 * (HEIGHT // 16) * (WIDTH // 16), 128), nn.SiLU(), nn.Linear(128, 5))

    def forward(
        self,
        frames: Tensor,  # (B, 3, HEIGHT, WIDTH) in [-1, 1]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Unit up direction (B, 3), xfov (B,) in degrees and xi (B,)."""
        raw = self.head(self.features(with_coordinates(frames)).flatten(1))
        up = raw[:, :3] + torch.tensor([0.0, -1.0, 0.0]).to(raw)
        up = up / up.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        return up, XFOV_CENTRE + XFOV_SPREAD * raw[:, 3], XI_SPREAD * (raw[:, 4] + 1)


class DeskMotion(nn.Module):
    """Motion of the second of two cameras in the first's frame, seen in two ways.

    Optical flow is precise where pictures are sharp. In soft or inconsistent ones it holds on to grain that stays where
    it is on the screen. Matches of larger patches do not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_flow, self.matcher, self.by_matching = MotionHead(), DeskMatcher(), MotionHead()

    def forward(
        self,
        first: np.ndarray,  # (B, HEIGHT, WIDTH, 3) uint8
        second: np.ndarray,  # (B, HEIGHT, WIDTH, 3) uint8
        first_lens: Lens,  # batch shape (B,)
        second_lens: Lens,  # batch shape (B,)
        matching: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Rotations (B, 3, 3) and translations (B, 3) in near-plane depths, by flow or by matching."""
        if matching:
            return self.by_matching(self.matcher(first, second, first_lens, second_lens))
        return self.by_flow(ray_motion(first, second, first_lens, second_lens))


class MotionHead(nn.Module):
    """How rays moved between two frames -> rotation and translation of the second camera in the first's frame.

    The rotation that explains most rays is found first. The network sees what it leaves unexplained, and corrects it.
    """

    def __init__(self, width: int = 64):
        super().__init__()
        self.features = nn.Sequential(
            _convolution(8, width // 2, kernel=1),
            _convolution(width // 2, width, stride=2),
            Residual(width),
            _convolution(width, width, stride=2),
            nn.Conv2d(width, 16, 1),
        )
        last = nn.Linear(96, 6)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.head = nn.Sequential(nn.Linear(16 * (HEIGHT // 16) * (WIDTH // 16), 96), nn.SiLU(), last)

    def forward(self, motion: RayMotion) -> tuple[Tensor, Tensor]:
        """Rotations (B, 3, 3) and translations (B, 3) in near-plane depths."""
        raw = self.head(self.features(motion.planes).flatten(1)).float()
        rotation = motion.rotation @ rotation_exp(torch.deg2rad(CORRECTION_UNIT * raw[:, :3])).to(motion.rotation)
        return rotation, TRANSLATION_UNIT * raw[:, 3:]


class DeskMatcher(nn.Module):
    """Where in the second frame each cell of 4 x 4 pixels of the first is seen again, by learned descriptors."""

    def __init__(self, width: int = 24, size: int = 40):
        super().__init__()
        self.fine = nn.Sequential(
            _convolution(3, width, stride=2, kernel=5), _convolution(width, 2 * width, stride=2), Residual(2 * width)
        )
        self.coarse = nn.Sequential(_convolution(2 * width, 3 * width, stride=2), Residual(3 * width))
        self.joined = nn.Sequential(
            nn.Conv2d(5 * width, 2 * width, 1), _convolution(2 * width, 2 * width), nn.Conv2d(2 * width, size + 1, 1)
        )
        self.log_sharpness = nn.Parameter(torch.tensor(2.7))

    def forward(
        self,
        first: np.ndarray,  # (B, HEIGHT, WIDTH, 3) uint8
        second: np.ndarray,  # (B, HEIGHT, WIDTH, 3) uint8
        first_lens: Lens,  # batch shape (B,)
        second_lens: Lens,  # batch shape (B,)
    ) -> RayMotion:
        """Matches as rays, and the rotation that explains them."""
        start, seen = cell_rays(first_lens)
        rays, shown = cell_rays(second_lens)
        chance, weight = self.match(pictures_of(first), pictures_of(second), seen, shown)
        end = nn.functional.normalize(chance.double() @ rays, dim=-1)
        rotation = best_rotation(start, end, weight.double())
        return RayMotion(rotation, _planes(start, end, rotation, seen, weight.double()))

    def match(
        self,
        first: Tensor,  # (B, 3, HEIGHT, WIDTH) in [-1, 1]
        second: Tensor,  # (B, 3, HEIGHT, WIDTH) in [-1, 1]
        seen: Tensor,  # (B, M) bool, cells of the first frame with a ray
        shown: Tensor,  # (B, M) bool, cells of the second
    ) -> tuple[Tensor, Tensor]:
        """Chance (B, M, M) that a cell of the first frame is each cell of the second; and its weight (B, M), 0 to 1."""
        one, trust = self.describe(first)
        two, _ = self.describe(second)
        likeness = self.log_sharpness.exp() * one @ two.mT
        there = likeness.masked_fill(~shown[:, None, :], -1e4).softmax(-1)
        back = likeness.masked_fill(~seen[:, :, None], -1e4).softmax(-2)
        return there, seen * trust * (there * back).sum(-1).clamp(min=1e-6)

    def describe(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Unit descriptors (B, M, size) of the cells, and how far to trust each (B, M), 0 to 1."""
        fine = self.fine(frames)
        coarse = nn.functional.interpolate(self.coarse(fine), size=fine.shape[-2:], mode="bilinear")
        raw = self.joined(torch.cat([fine, coarse], dim=1)).flatten(2).mT.float()
        return nn.functional.normalize(raw[..., :-1], dim=-1), raw[..., -1].sigmoid()


class Residual(nn.Module):
    """Two convolutions added to what comes in."""

    def __init__(self, channels: int):
        super().__init__()
        self.body = nn.Sequential(_convolution(channels, channels), _convolution(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, channels, H, W) of the same shape."""
        return x + self.body(x)


def ray_motion(
    first: np.ndarray,  # (B, HEIGHT, WIDTH, 3) uint8
    second: np.ndarray,  # (B, HEIGHT, WIDTH, 3) uint8
    first_lens: Lens,  # batch shape (B,)
    second_lens: Lens,  # batch shape (B,)
) -> RayMotion:
    """Dense optical flow between frames, as rays; and the rotation that explains most of them."""
    flow = torch.from_numpy(np.stack([_flow(*pair) for pair in zip(first, second)])).double()
    pixels = pixel_grid(HEIGHT // 4, WIDTH // 4, torch.float64).mul(4).expand_as(flow)
    moved = pixels + flow
    before = first_lens.unproject(pixels, HEIGHT, WIDTH)
    after = second_lens.unproject(moved, HEIGHT, WIDTH)
    inside = (moved >= 0).all(-1) & (moved[..., 0] <= WIDTH) & (moved[..., 1] <= HEIGHT)
    seen = (before.valid & after.valid & inside).flatten(1)
    start, end = before.directions.flatten(1, 2), after.directions.flatten(1, 2)
    rotation, weight = robust_rotation(start, end, seen)
    return RayMotion(rotation, _planes(start, end, rotation, seen, weight))


def robust_rotation(
    start: Tensor,  # (B, M, 3) unit
    end: Tensor,  # (B, M, 3) unit
    seen: Tensor,  # (B, M) bool
    rounds: int = 10,
) -> tuple[Tensor, Tensor]:
    """Rotations (B, 3, 3) that turn `end` into `start` for most pairs, and how far each pair agrees (B, M), 0 to 1."""
    weight = seen.to(start)
    rotation = torch.eye(3).to(start).expand(len(start), 3, 3)
    for _ in range(rounds):
        rotation = best_rotation(start, end, weight)
        residual = (end @ rotation.mT - start).norm(dim=-1)
        typical = residual.masked_fill(~seen, torch.nan).nanmedian(-1, keepdim=True).values.nan_to_num(1.0)
        weight = seen / (1 + (residual / (1.5 * typical).clamp(min=MIN_RESIDUAL)) ** 2) ** 2
    return rotation, weight


def best_rotation(
    start: Tensor,  # (B, M, 3)
    end: Tensor,  # (B, M, 3)
    weight: Tensor,  # (B, M)
) -> Tensor:
    """Rotations (B, 3, 3) R that minimise sum weight |start - R end|^2."""
    return nearest_rotation((start * weight[..., None]).mT @ end)


def cell_rays(lens: Lens) -> tuple[Tensor, Tensor]:
    """Unit rays (B, M, 3) in double precision of the cells of 4 x 4 pixels, and which exist (B, M)."""
    rays = lens.rays(HEIGHT // 4, WIDTH // 4, dtype=torch.float64)
    return rays.directions.flatten(1, 2), rays.valid.flatten(1)


def pictures_of(
    frames: np.ndarray,  # (B, H, W, 3) uint8
) -> Tensor:
    """Frames (B, 3, H, W) in [-1, 1]."""
    return torch.from_numpy(np.ascontiguousarray(frames)).movedim(-1, 1).float() / 127.5 - 1


def with_coordinates(
    frames: Tensor,  # (B, 3, H, W)
) -> Tensor:
    """Frames with the pixel position and its distance from the centre as channels (B, 6, H, W)."""
    height, width = frames.shape[-2:]
    v = (torch.arange(height).to(frames) + 0.5) * 2 / height - 1
    u = (torch.arange(width).to(frames) + 0.5) * 2 / width - 1
    v, u = torch.meshgrid(v * (height / width), u, indexing="ij")
    planes = torch.stack([u, v, (u * u + v * v).sqrt()]).expand(len(frames), 3, height, width)
    return torch.cat([frames, planes], dim=1)


def _planes(start: Tensor, end: Tensor, rotation: Tensor, seen: Tensor, weight: Tensor) -> Tensor:
    """What a MotionHead looks at: rays (B, M, 3) and what the rotation leaves unexplained, as planes."""
    parallax = (end @ rotation.mT - start) * seen[..., None] * PARALLAX_GAIN
    planes = torch.cat([parallax.clamp(-3, 3), start, seen[..., None], weight[..., None]], dim=-1)
    return planes.mT.unflatten(2, (HEIGHT // 4, WIDTH // 4)).float()


def _flow(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Optical flow (HEIGHT // 4, WIDTH // 4, 2) in pixels between frames (HEIGHT, WIDTH, 3), averaged over cells."""
    import cv2

    size = (WIDTH * FLOW_ENLARGED, HEIGHT * FLOW_ENLARGED)
    grey = [cv2.cvtColor(np.ascontiguousarray(frame), cv2.COLOR_RGB2GRAY) for frame in (first, second)]
    large = [cv2.resize(frame, size, interpolation=cv2.INTER_CUBIC) for frame in grey]
    search = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
    flow = search.calc(large[0], large[1], np.zeros((*size[::-1], 2), np.float32))
    return cv2.resize(flow, (WIDTH // 4, HEIGHT // 4), interpolation=cv2.INTER_AREA) / FLOW_ENLARGED


def _convolution(inputs: int, outputs: int, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    groups = math.gcd(outputs, 8)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2), nn.GroupNorm(groups, outputs), nn.SiLU()
    )
