"""Shared by the encoding tests: named lenses, poses, tolerances, and the operators by their plain dense definition."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from ucpe.encodings import Operator
from ucpe.lenses import (
    EUCM,
    UCM,
    BrownConrady,
    DoubleSphere,
    Equidistant,
    Equirectangular,
    KannalaBrandt,
    Lens,
    OmniStereo,
    Pinhole,
)

LENSES: dict[str, Lens] = {
    "pinhole[90]": Pinhole(xfov=90),
    "pinhole[off-centre]": Pinhole(fx=500, fy=450, cx=300, cy=260, width=640, height=480),
    "ucm[130, 0.7]": UCM(xfov=130, xi=0.7),
    "ucm[180, 2.0]": UCM(xfov=180, xi=2.0),
    "ucm[200, 2.3]": UCM(xfov=200, xi=2.3),
    "eucm": EUCM(xfov=120, alpha=0.6, beta=1.1),
    "double_sphere": DoubleSphere(xfov=150, xi=0.2, alpha=0.55),
    "brown_conrady": BrownConrady(xfov=100, k1=-0.2, k2=0.03),
    "kannala_brandt": KannalaBrandt(xfov=140, k1=-0.02, k2=0.003),
    "equidistant[220]": Equidistant(xfov=220),
    "equirectangular": Equirectangular(),
    "omni_stereo": OmniStereo(baseline=0.5),
}

TOLERANCES = {
    "dense": {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 3e-2},
    "world frame": {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2e-2},
    "bf16 at 1 unit": {torch.bfloat16: 8e-3},
    "bf16 at 10 units": {torch.bfloat16: 1e-2},
    "bf16 at 100 units": {torch.bfloat16: 3e-2},
}
"""Largest relative error (norm of the difference over norm) of an attention output, by what is tested and dtype."""


@pytest.fixture(params=LENSES, name="lens")
def _lens(request: pytest.FixtureRequest) -> Lens:
    return LENSES[request.param]


@pytest.fixture
def lenses() -> dict[str, Lens]:
    return LENSES


@pytest.fixture
def tolerances() -> dict[str, dict[torch.dtype, float]]:
    return TOLERANCES


@pytest.fixture
def poses() -> Callable[..., Tensor]:
    return make_poses


@pytest.fixture
def dense() -> Callable[..., Tensor]:
    return dense_operator


@pytest.fixture
def dense_attention() -> Callable[..., Tensor]:
    return attend_densely


@pytest.fixture
def straightforward() -> Callable[..., Tensor]:
    return split_einsum_concatenate


@pytest.fixture
def error() -> Callable[[Tensor, Tensor], float]:
    return relative_error


def make_poses(*shape: int, seed: int = 0, distance: float = 1.0) -> Tensor:
    """Random poses (*shape, 4, 4), the furthest `distance` from the first."""
    generator = torch.Generator().manual_seed(seed)
    c2w = torch.eye(4, dtype=torch.float64).repeat(math.prod(shape), 1, 1)
    c2w[:, :3, :3] = torch.as_tensor(Rotation.random(len(c2w), random_state=seed).as_matrix())
    offsets = torch.randn(len(c2w), 3, generator=generator, dtype=torch.float64)
    offsets = offsets - offsets[:1]
    c2w[:, :3, 3] = distance * offsets / offsets.norm(dim=-1).max().clamp(min=1e-9)
    return c2w.reshape(*shape, 4, 4)


def dense_operator(
    encoding: str,
    lens: Lens,
    c2w: Tensor,  # (N, 4, 4)
    height: int,
    width: int,
    head_dim: int,
    rope: bool = True,
    frame: str = "paper",
) -> tuple[Tensor, Tensor]:
    """D (tokens, head_dim, head_dim) as the paper defines it, token by token in world coordinates, and valid."""
    rays = lens.rays(height, width, dtype=torch.float64)
    matrices, seen = [], []
    for pose in c2w:
        for v in range(height):
            for u in range(width):
                valid = bool(rays.valid[v, u])
                if encoding == "ucpe":
                    block = _dense_ray_block(pose, rays.origins[v, u], rays.directions[v, u], frame)
                    block = block if valid else torch.linalg.inv(c2w[0])
                else:
                    block = torch.linalg.inv(pose)
                if encoding == "prope":
                    lifted = torch.eye(4, dtype=torch.float64)
                    to_unit = torch.tensor(
                        [[1 / width, 0, -0.5], [0, 1 / height, -0.5], [0, 0, 1]], dtype=torch.float64
                    )
                    lifted[:3, :3] = to_unit @ lens.intrinsics(height, width).double()
                    block = lifted @ block
                camera_channels = head_dim // 2 if rope else head_dim
                parts = [torch.kron(torch.eye(camera_channels // 4, dtype=torch.float64), block.contiguous())]
                if rope:
                    parts += [_dense_rope(u, head_dim // 4), _dense_rope(v, head_dim // 4)]
                matrices.append(torch.block_diag(*parts))
                seen.append(valid)
    return torch.stack(matrices), torch.tensor(seen)


def attend_densely(
    query: Tensor,  # (..., heads, query tokens, head_dim)
    key: Tensor,  # (..., heads, key tokens, head_dim)
    value: Tensor,
    query_matrix: Tensor,  # (query tokens, head_dim, head_dim)
    key_matrix: Tensor,
    keep: Tensor,  # broadcasts to (query tokens, key tokens)
    transform_value: bool = True,
) -> Tensor:
    """D Attn(D^T Q, D^-1 K, D^-1 V) with explicit matrices and an explicit softmax."""
    inverse = torch.linalg.inv(key_matrix)
    keys = torch.einsum("kde,...ke->...kd", inverse, key)
    logits = torch.einsum("...qc,qcd,...kd->...qk", query, query_matrix, keys) / query.shape[-1] ** 0.5
    weights = torch.softmax(logits.masked_fill(~keep, -torch.inf), dim=-1).nan_to_num(0)
    if not transform_value:
        return weights @ value
    values = torch.einsum("kde,...ke->...kd", inverse, value)
    return torch.einsum("qcd,...qd->...qc", query_matrix, weights @ values)


def split_einsum_concatenate(x: Tensor, operator: Operator, blocks: Tensor, sign: float) -> Tensor:
    """The straightforward formulation: split, einsum, rotate, concatenate. `sign` is -1 for D^T and D^-1."""
    head_dim = x.shape[-1]
    blocks = blocks.repeat_interleave(operator.tokens_per_block, dim=-3)
    if operator.cosine is None:
        return torch.einsum("...tij,...htpj->...htpi", blocks, x.unflatten(-1, (-1, 4))).flatten(-2)
    camera, columns, rows = x.split([head_dim // 2, head_dim // 4, head_dim // 4], dim=-1)
    camera = torch.einsum("...tij,...htpj->...htpi", blocks, camera.unflatten(-1, (-1, 4))).flatten(-2)
    parts = [camera]
    for part, cosine, sine in zip((columns, rows), operator.cosine.chunk(2, -1), operator.sine.chunk(2, -1)):
        first, second = part.chunk(2, dim=-1)
        parts += [cosine * first - sign * sine * second, sign * sine * first + cosine * second]
    return torch.cat(parts, dim=-1)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


def _dense_ray_block(pose: Tensor, origin: Tensor, direction: Tensor, frame: str) -> Tensor:
    """World-to-ray transform of one ray, built in the world."""
    z = pose[:3, :3] @ direction
    if frame == "paper":
        x = torch.linalg.cross(pose[:3, 1], z)
        x = x / x.norm()
        axes = torch.stack([x, torch.linalg.cross(z, x), z], dim=-1)
    else:
        optical = pose[:3, 2]
        turn = torch.linalg.cross(optical, z)
        angle = torch.atan2(turn.norm(), optical @ z)
        turn = turn / turn.norm().clamp(min=1e-12) * angle
        axes = torch.as_tensor(Rotation.from_rotvec(turn.numpy()).as_matrix()) @ pose[:3, :3]
    ray_to_world = torch.eye(4, dtype=torch.float64)
    ray_to_world[:3, :3] = axes
    ray_to_world[:3, 3] = pose[:3, :3] @ origin + pose[:3, 3]
    return torch.linalg.inv(ray_to_world)


def _dense_rope(position: int, channels: int) -> Tensor:
    """Rotation matrix (channels, channels) pairing channel i with i + channels / 2."""
    half = channels // 2
    matrix = torch.zeros(channels, channels, dtype=torch.float64)
    for i in range(half):
        angle = position * 100.0 ** (-i / half)
        matrix[i, i] = matrix[i + half, i + half] = math.cos(angle)
        matrix[i + half, i] = math.sin(angle)
        matrix[i, i + half] = -math.sin(angle)
    return matrix
