"""Encodings with parameters of their own in every attention layer: RoRE, RayPE and RayRoPE."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ucpe.encodings.frames import as_poses, world_rays
from ucpe.encodings.sightings import place_points
from ucpe.lenses.base import Lens
from ucpe.lenses.numerics import norm
from ucpe.trajectories.rotations import invert_pose

SMALLEST_MOMENT = 1e-6
"""RayPE's bound below which a moment has no direction, in world units."""


class RotaryRays(nn.Module):
    """RoRE: queries and keys turned by angles that are learned linear functions of a token's Plücker ray.

    Two channels i turn by sum_p P_p theta_(p, i), where P holds direction d and moment m, and their mirror images
    1 - d and 1 - m. The frequencies theta start with one component of the ray each, from `HIGHEST` down by octaves.
    """

    HIGHEST = 8.0
    """Highest frequency at the start, in radians per unit of direction or moment."""

    def __init__(self, head_dim: int):
        super().__init__()
        count = head_dim // 2
        start = torch.zeros(12, count)
        for i in range(count):
            start[i % 6, i] = self.HIGHEST / 2 ** (i // 6)
        self.frequency = nn.Parameter(start)

    def forward(
        self,
        query: Tensor,  # (..., heads, tokens, head_dim)
        key: Tensor,  # (..., heads, tokens, head_dim)
        rays: Tensor,  # (..., tokens, 6)
    ) -> tuple[Tensor, Tensor]:
        """Turned queries and keys, for plain attention."""
        dtype = torch.promote_types(self.frequency.dtype, torch.float32)
        position = torch.cat([rays, 1 - rays], dim=-1).to(dtype)
        device = "cpu" if rays.device.type == "meta" else rays.device.type
        with torch.autocast(device, enabled=False):  # would round the geometry
            angles = (position @ self.frequency.to(dtype))[..., None, :, :]
        return _turned(query, angles.cos(), angles.sin()), _turned(key, angles.cos(), angles.sin())


class AddedRays(nn.Module):
    """RayPE: a token's Plücker ray added to its query and key, swapped in the key.

    A query gets alpha_q g N(E_q(d, m / |m|, s)), a key alpha_k g N(E_k(m / |m|, d, s)): s = log |m|, the gate g is a
    function of s, N is RMS normalisation over all heads, and E are two linear layers of which the last starts at zero.
    With the identity for E, the product of the two is the reciprocal product of the rays. Weights have the names and
    shapes of the released ones (SCoPE).
    """

    HIDDEN = 64
    """Channels between the linear layers of E."""

    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        width = heads * head_dim
        self.heads = heads
        self.eq, self.ek = (
            nn.Sequential(nn.Linear(7, self.HIDDEN, bias=False), nn.GELU(), nn.Linear(self.HIDDEN, width, bias=False))
            for _ in range(2)
        )
        self.norm_pe_q, self.norm_pe_k = (nn.RMSNorm(width, eps=1e-6) for _ in range(2))
        self.scale_gate = nn.Sequential(nn.Linear(1, width // 4), nn.SiLU(), nn.Linear(width // 4, width), nn.Sigmoid())
        self.alpha_q, self.alpha_k = (nn.Parameter(torch.ones(1)) for _ in range(2))
        for name in ("eq.2.weight", "ek.2.weight", "scale_gate.0.bias", "scale_gate.2.bias"):
            nn.init.zeros_(self.get_parameter(name))

    def forward(
        self,
        rays: Tensor,  # (..., tokens, 6)
    ) -> tuple[Tensor, Tensor]:
        """What is added to queries and to keys (..., heads, tokens, head_dim), after their norm and RoPE."""
        direction, moment = rays.split(3, dim=-1)
        length = norm(moment).clamp(min=SMALLEST_MOMENT)[..., None]
        moment, size = moment / length, length.log()
        for_query, for_key = (
            torch.cat(parts, dim=-1).to(self.alpha_q)
            for parts in ((direction, moment, size), (moment, direction, size))
        )
        gate = self.scale_gate(size.to(self.alpha_q)) * direction.any(-1, keepdim=True)  # nothing without a ray
        query = self.alpha_q * gate * self.norm_pe_q(self.eq(for_query))
        key = self.alpha_k * gate * self.norm_pe_k(self.ek(for_key))
        return self._heads(query), self._heads(key)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)


class RaySegments(nn.Module):
    """RayRoPE: a token is the segment from its camera to a point at a predicted depth, seen by the query's camera.

    Each layer predicts a range of distances from every token. RoPE runs over the key's camera centre (x, y, z), where
    the far end appears (u, v, squashed to the unit disc) and how far away it is, all as the query's camera sees them;
    over the range of distances cosine and sine are averaged. Keys and values are turned for every camera that asks.
    """

    PERIODS = (4.0, 4.0, 4.0, 8.0, 8.0, 80.0)
    """Longest period of each coordinate: centre and distance in world units, place in radii of the unit disc."""

    RATIO = 3.0
    """Ratio of neighbouring frequencies."""

    NEAREST, FARTHEST = 0.01, 20.0
    """Bounds of predicted distances, in world units."""

    SHOWN = 10.0
    """Distance from the query's camera beyond which all is equally far."""

    rates: Tensor

    def __init__(self, width: int, head_dim: int):
        super().__init__()
        self.frequencies = head_dim // (2 * len(self.PERIODS))
        if self.frequencies < 1:
            raise ValueError(f"RayRoPE needs heads of {2 * len(self.PERIODS)} channels at least, got {head_dim}")
        self.distance = nn.Linear(width, 2)
        nn.init.zeros_(self.distance.weight)
        with torch.no_grad():
            self.distance.bias.copy_(torch.tensor([0.0, math.log(self.FARTHEST)]))
        longest = 2 * math.pi / torch.tensor(self.PERIODS)
        rates = self.RATIO ** torch.arange(self.frequencies)[:, None] * longest
        self.register_buffer("rates", rates, persistent=False)  # (frequencies, coordinates)

    def forward(
        self,
        query: Tensor,  # (..., heads, N * height * width, head_dim)
        key: Tensor,  # (..., heads, N * height * width, head_dim)
        value: Tensor,  # (..., heads, N * height * width, head_dim)
        tokens: Tensor,  # (..., N * height * width, width), from which distances are predicted
        lens: Lens,  # batch shape broadcasts against (..., N)
        c2w: Tensor,  # (..., N, 4, 4)
        height: int,
        width: int,
        mask: Tensor | None = None,  # broadcasts to (..., heads, 1, key tokens)
    ) -> Tensor:
        """Attention output (..., heads, N * height * width, head_dim)."""
        cosine, sine = self.turns(tokens, lens, c2w, height, width)  # (..., N, tokens, angles)
        views, count = c2w.shape[-3], height * width
        parts = []
        for view in range(views):
            rows = slice(view * count, (view + 1) * count)
            seen = [t[..., view, None, :, :] for t in (cosine, sine)]
            own = [t[..., rows, :] for t in seen]
            attended = scaled_dot_product_attention(
                _turned(query[..., rows, :], own[0], -own[1]),
                _turned(key, seen[0], -seen[1]),
                _turned(value, seen[0], -seen[1]),
                attn_mask=mask,
            )
            parts.append(_turned(attended, *own))
        return torch.cat(parts, dim=-2)

    def turns(self, tokens: Tensor, lens: Lens, c2w: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Mean cosine and sine (..., N, tokens, angles) of every token for every camera."""
        middle, spread = self.distance(tokens).double().unbind(-1)
        ends = torch.stack([middle - spread, middle + spread], dim=-2)  # (..., 2, tokens)
        ends = ends.exp().clamp(self.NEAREST, self.FARTHEST)
        poses = as_poses(c2w)
        rays = world_rays(lens, poses, height, width)
        starts, axes = poses[..., None, None, :3, 3], poses[..., None, None, :3, 2]  # for tokens without a ray
        origins = torch.where(rays.valid[..., None], rays.origins, starts).flatten(-4, -2)
        directions = torch.where(rays.valid[..., None], rays.directions, axes).flatten(-4, -2)
        points = (origins[..., None, :, :] + ends[..., None] * directions[..., None, :, :])[..., None, :, :, :]
        places = place_points(lens, poses, points, height, width)  # (..., N, 2, tokens, 2)
        offset = 2 * places / torch.tensor([width, height], dtype=places.dtype, device=places.device) - 1
        disc = offset / (1 + (offset * offset).sum(-1, keepdim=True)).sqrt()
        far = norm(points - poses[..., None, None, :3, 3]).clamp(max=self.SHOWN)[..., None]
        to_query = invert_pose(poses)
        centres = (to_query[..., None, :3, :3] @ origins[..., None, :, :, None])[..., 0] + to_query[..., None, :3, 3]
        centres = centres[..., None, :, :].expand(*disc.shape[:-1], 3)
        coordinates = torch.cat([centres, disc, far], dim=-1).to(self.rates)
        near, beyond = (coordinates[..., None, :] * self.rates).flatten(-2).unbind(-3)
        return mean_turn(near, beyond)


def mean_turn(start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cosine and sine of an angle that is anywhere between two with equal probability."""
    half = (end - start) / 2
    shrink = torch.sinc(half / math.pi)
    middle = (start + end) / 2
    return shrink * middle.cos(), shrink * middle.sin()


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The first 2 x angles channels turned by angles (..., tokens, angles), channel i with i + angles; others stay."""
    count = cosine.shape[-1]
    first, second, rest = x.split([count, count, x.shape[-1] - 2 * count], dim=-1)
    cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine, rest], dim=-1)
