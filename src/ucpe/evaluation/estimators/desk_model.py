"""The two small networks of the desk estimators."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor, nn

HEIGHT, WIDTH = 64, 112
"""Frame size that the networks take."""

XFOV_CENTRE, XFOV_SPREAD, XI_SPREAD = 140.0, 35.0, 0.8
"""Offsets and units (degrees, xi) in which the field of view and distortion are regressed."""

SEARCH = 4
"""Feature cells (of 4 pixels) in each direction over which frames are compared."""

ROTATION_UNIT, TRANSLATION_UNIT = 5.0, 0.1
"""Degrees and near-plane depths in which motion between frames is regressed."""


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
    """Two frames and the rays of their lens -> rotation and translation of the second camera in the first's frame."""

    def __init__(self, width: int = 24, features: int = 32):
        super().__init__()
        self.encode = nn.Sequential(
            _convolution(3, width, stride=2),
            _convolution(width, 2 * width, stride=2),
            nn.Conv2d(2 * width, features, 3, padding=1),
        )
        cells = (2 * SEARCH + 1) ** 2
        self.decode = nn.Sequential(
            _convolution(cells + 4 + features, 64, kernel=1),
            _convolution(64, 64),
            _convolution(64, 80, stride=2),
            Residual(80),
            _convolution(80, 80, stride=2),
            nn.Conv2d(80, 16, 1),
        )
        self.head = nn.Sequential(nn.Linear(16 * (HEIGHT // 16) * (WIDTH // 16), 128), nn.SiLU(), nn.Linear(128, 6))

    def forward(
        self,
        first: Tensor,  # (B, 3, HEIGHT, WIDTH) in [-1, 1]
        second: Tensor,  # (B, 3, HEIGHT, WIDTH)
        rays: Tensor,  # (B, 4, HEIGHT // 4, WIDTH // 4): direction and validity
    ) -> tuple[Tensor, Tensor]:
        """Rotation vectors (B, 3) in degrees and translations (B, 3) in near-plane depths."""
        before, after = self.encode(torch.cat([first, second])).chunk(2)
        raw = self.head(self.decode(torch.cat([correlation(before, after), rays, before], dim=1)).flatten(1))
        return ROTATION_UNIT * raw[:, :3], TRANSLATION_UNIT * raw[:, 3:]


class Residual(nn.Module):
    """Two convolutions added to what comes in."""

    def __init__(self, channels: int):
        super().__init__()
        self.body = nn.Sequential(_convolution(channels, channels), _convolution(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, channels, H, W) of the same shape."""
        return x + self.body(x)


def correlation(
    before: Tensor,  # (B, C, H, W)
    after: Tensor,  # (B, C, H, W)
) -> Tensor:
    """Scalar products (B, (2 SEARCH + 1)^2, H, W) of every cell with its neighbourhood in the other frame."""
    height, width = before.shape[-2:]
    before, after = (features / features.norm(dim=1, keepdim=True).clamp(min=1e-4) for features in (before, after))
    product = before.flatten(2).mT @ after.flatten(2)
    product = nn.functional.pad(product, (0, 1))  # one more cell: what lies outside the image
    near = _neighbours(height, width, before.device).expand(len(product), -1, -1)
    return 4 * product.gather(2, near).mT.unflatten(2, (height, width))


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


@cache
def _neighbours(height: int, width: int, device: torch.device) -> Tensor:
    """Index (H * W, (2 SEARCH + 1)^2) of each cell's neighbours, H * W where they lie outside."""
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    step = torch.arange(-SEARCH, SEARCH + 1)
    down, right = torch.meshgrid(step, step, indexing="ij")
    row, column = rows.reshape(-1, 1) + down.reshape(1, -1), columns.reshape(-1, 1) + right.reshape(1, -1)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return torch.where(inside, row * width + column, height * width).to(device)


def _convolution(inputs: int, outputs: int, stride: int = 1, kernel: int = 3) -> nn.Sequential:
    groups = math.gcd(outputs, 8)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2), nn.GroupNorm(groups, outputs), nn.SiLU()
    )
