"""The contestants of the novel view benchmark: what each tells the model about cameras, and where.

A contestant is a subclass of `CameraEncoding`; yours takes part by `--encoding my_module:MyEncoding`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ucpe.bench.contestants import Contestant, find, maker_of
from ucpe.encodings import (
    AddedRays,
    Operator,
    RaySegments,
    RotaryRays,
    camera_attention,
    camera_operator,
    lat_up_map,
    plucker_rays,
    raw_parameters,
    sightline_features,
)
from ucpe.encodings.frames import Frame, anchored_poses
from ucpe.encodings.operators import Encoding
from ucpe.lenses import UCM, Lens, Pinhole

Anchor = Literal["gravity", "camera"]


@dataclass(frozen=True)
class ModelShape:
    """Sizes of the benchmark's transformer."""

    views: int = 3
    rows: int = 6
    columns: int = 6
    """Tokens of a view."""
    patch: int = 8
    """Pixels along each side of a token."""
    width: int = 96
    layers: int = 4
    heads: int = 3

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.width // self.heads

    @property
    def tokens(self) -> int:
        """Tokens of all views."""
        return self.views * self.rows * self.columns


def patches(images: Tensor, shape: ModelShape) -> Tensor:
    """Images (..., H, W, C) as tokens (..., rows * columns, C patch²)."""
    tokens = images.unflatten(-2, (shape.columns, shape.patch)).unflatten(-4, (shape.rows, shape.patch))
    return tokens.transpose(-4, -3).flatten(-3).flatten(-3, -2)


class CameraEncoding(nn.Module):
    """A way to tell a transformer about cameras; this one says nothing. Override what you need.

    The benchmark calls `describe` once per clip and hands the result, indexed by clip, to `add` and `attend` of every
    layer. Tokens are view-major, then rows, then columns. Additive layers should start at zero.
    """

    anchor: Anchor = "gravity"
    """World frame of the poses given to `describe` where frames are anchored: that of the first view ("camera"), or
    upright at its position and heading ("gravity")."""

    def __init__(self, shape: ModelShape):
        super().__init__()
        self.shape = shape
        self.identity = self._camera_operator("gta", Pinhole(xfov=90), torch.eye(4).repeat(shape.views, 1, 1))

    def describe(
        self,
        lens: Lens,  # batch shape (B, views) or ()
        c2w: Tensor,  # (B, views, 4, 4)
    ) -> dict[str, Tensor]:
        """What `add` and `attend` need of these cameras: tensors whose first dimension is the clip."""
        return {}

    def add(
        self,
        layer: int,
        tokens: Tensor,  # (B, tokens, width)
        description: dict[str, Tensor],
    ) -> Tensor:
        """Input (B, tokens, width) of a layer."""
        return tokens

    def operator(self, description: dict[str, Tensor]) -> Operator:
        """Operator of attention; without cameras it is RoPE on half of a head."""
        return self.identity

    def attend(
        self,
        layer: int,
        query: Tensor,  # (B, heads, tokens, head_dim)
        key: Tensor,  # (B, heads, tokens, head_dim)
        value: Tensor,  # (B, heads, tokens, head_dim)
        description: dict[str, Tensor],
        mask: Tensor,  # (B, 1, 1, tokens) bool, False for keys that see nothing
    ) -> Tensor:
        """Attention output (B, heads, tokens, head_dim) of a layer."""
        return camera_attention(query, key, value, self.operator(description), attention_mask=mask, mask_invalid=False)

    def _camera_operator(self, encoding: Encoding, lens: Lens, c2w: Tensor, frame: Frame = "paper") -> Operator:
        shape = self.shape
        return camera_operator(
            encoding,
            lens,
            c2w,
            shape.rows,
            shape.columns,
            shape.head_dim,
            frame=frame,
            heads=shape.heads,
            dtype=torch.get_default_dtype(),
        )


class AdditiveEncoding(CameraEncoding):
    """Features of every token through one zero-initialised linear layer per block, added to its input."""

    channels: int
    """Number of features of a token."""

    def __init__(self, shape: ModelShape, channels: int | None = None):
        super().__init__(shape)
        channels = self.channels if channels is None else channels
        self.projections = nn.ModuleList(nn.Linear(channels, shape.width) for _ in range(shape.layers))
        for parameter in self.projections.parameters():
            nn.init.zeros_(parameter)

    def features(self, lens: Lens, c2w: Tensor) -> Tensor:
        """Features (B, tokens or views, channels)."""
        raise NotImplementedError

    def describe(self, lens: Lens, c2w: Tensor) -> dict[str, Tensor]:
        """The features."""
        return {"features": self.features(lens, c2w)}

    def add(self, layer: int, tokens: Tensor, description: dict[str, Tensor]) -> Tensor:
        """Tokens plus their projected features."""
        added = self.projections[layer](description["features"])
        repeats = tokens.shape[1] // added.shape[1]
        return tokens + (added if repeats == 1 else added.repeat_interleave(repeats, dim=1))


class RawParameters(AdditiveEncoding):
    """Pose, field of view and xi of each view, as numbers; the nearest UCM of a lens that is none."""

    anchor: Anchor = "camera"
    channels = 14

    def features(self, lens: Lens, c2w: Tensor) -> Tensor:
        """Camera parameters (B, views, 14)."""
        size = (self.shape.rows * self.shape.patch, self.shape.columns * self.shape.patch)
        lens = lens if isinstance(lens, UCM | Pinhole) else lens.fit(UCM, *size).lens
        return raw_parameters(lens, c2w, *size, dtype=torch.get_default_dtype())


class PluckerTokens(AdditiveEncoding):
    """Plücker coordinates of the ray through the centre of each token."""

    channels = 6

    def features(self, lens: Lens, c2w: Tensor) -> Tensor:
        """Plücker coordinates (B, tokens, 6)."""
        rays = plucker_rays(lens, c2w, self.shape.rows, self.shape.columns, dtype=torch.get_default_dtype())
        return rays.flatten(1, 3)


class PluckerPixels(AdditiveEncoding):
    """Plücker coordinates of the rays through every pixel of each token."""

    def __init__(self, shape: ModelShape):
        super().__init__(shape, channels=6 * shape.patch**2)

    def features(self, lens: Lens, c2w: Tensor) -> Tensor:
        """Plücker coordinates (B, tokens, 6 patch²)."""
        shape = self.shape
        size = (shape.rows * shape.patch, shape.columns * shape.patch)
        rays = plucker_rays(lens, c2w, *size, dtype=torch.get_default_dtype())
        return patches(rays, shape).flatten(1, 2)


class RelativeEncoding(CameraEncoding):
    """Camera blocks on half of every head: D^T on queries, D^-1 on keys and values, D on outputs."""

    encoding: Encoding
    frame: Frame = "paper"
    transforms_value = True
    parts: tuple[str, ...] = ("blocks", "inverse")
    """What of an operator depends on the cameras."""
    adds: type[CameraEncoding] = CameraEncoding
    """What is added to tokens beside; here nothing."""

    def __init__(self, shape: ModelShape):
        super().__init__(shape)
        still = torch.eye(4).repeat(shape.views, 1, 1)
        self.identity = self._camera_operator(self.encoding, Pinhole(xfov=90), still, self.frame)
        self.beside = self.adds(shape)

    def describe(self, lens: Lens, c2w: Tensor) -> dict[str, Tensor]:
        """The parts of these cameras' operator, clips first, and what is added to tokens."""
        built = self._camera_operator(self.encoding, lens, c2w, self.frame)
        return {name: getattr(built, name) for name in self.parts} | self.beside.describe(lens, c2w)

    def add(self, layer: int, tokens: Tensor, description: dict[str, Tensor]) -> Tensor:
        """Tokens plus what is added to them."""
        return self.beside.add(layer, tokens, description)

    def operator(self, description: dict[str, Tensor]) -> Operator:
        """Operator with these parts."""
        parts = {name: description[name] for name in self.parts}
        return self.identity.replaced(**parts, transforms_value=self.transforms_value, anchor=None)


class GTA(RelativeEncoding):
    """The pose of each view, on queries, keys, values and outputs."""

    encoding = "gta"


class CaPE(RelativeEncoding):
    """The pose of each view, on queries and keys."""

    encoding = "cape"
    transforms_value = False


class PRoPE(RelativeEncoding):
    """Pose and intrinsics of each view. Another lens is taken as the pinhole that matches it on its axis."""

    encoding = "prope"

    def describe(self, lens: Lens, c2w: Tensor) -> dict[str, Tensor]:
        """The blocks of D and their inverses (B, views, 4, 4)."""
        size = (self.shape.rows, self.shape.columns)
        focal = lens.intrinsics(*size)[..., 0, 0].double() / (1 + lens.parameters.get("xi", torch.zeros(())))
        return super().describe(Pinhole(fx=focal, height=size[0], width=size[1]), c2w)


class UCPE(RelativeEncoding):
    """One rigid transform per ray, with the paper's frame."""

    encoding = "ucpe"


class UCPEQueryKey(UCPE):
    """UCPE on queries and keys only."""

    transforms_value = False


class UCPETransport(UCPE):
    """UCPE whose frame is the smallest rotation from the optical axis to the ray."""

    frame: Frame = "transport"


class LatUp(AdditiveEncoding):
    """The direction of up and the latitude at every token."""

    channels = 3

    def features(self, lens: Lens, c2w: Tensor) -> Tensor:
        """Lat-Up map (B, tokens, 3)."""
        up = lat_up_map(lens, c2w, self.shape.rows, self.shape.columns, dtype=torch.get_default_dtype())
        return up.flatten(1, 3)


class UCPELatUp(UCPE):
    """UCPE, and the Lat-Up map through a zero-initialised linear layer per block."""

    adds = LatUp


class URoPE(RelativeEncoding):
    """RoPE at the place where the query's view sees points of the key's ray, at a few depths."""

    encoding: Encoding = "urope"
    parts = ("blocks", "inverse", "seen_cosine", "seen_sine")


class AnchoredRays(AdditiveEncoding):
    """Rays and Lat-Up map of every token in the upright frame of the first view, in any world."""

    channels = 27

    def features(self, lens: Lens, c2w: Tensor) -> Tensor:
        """Features (B, tokens, 27)."""
        shape = self.shape
        return sightline_features(lens, c2w, shape.rows, shape.columns, dtype=torch.get_default_dtype()).flatten(1, 3)


class Sightline(URoPE):
    """UCPE on half of a head, URoPE on the other, and rays as the first view has them added to the tokens."""

    encoding: Encoding = "sightline"
    adds = AnchoredRays


class RoRE(PluckerTokens):
    """Queries and keys turned by learned functions of each token's Plücker ray; no other positions in attention."""

    def __init__(self, shape: ModelShape):
        CameraEncoding.__init__(self, shape)
        self.layers = nn.ModuleList(RotaryRays(shape.head_dim) for _ in range(shape.layers))

    def add(self, layer: int, tokens: Tensor, description: dict[str, Tensor]) -> Tensor:
        """The tokens as they are."""
        return tokens

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, description: dict[str, Tensor], mask: Tensor
    ) -> Tensor:
        """Plain attention between turned queries and keys."""
        query, key = self.layers[layer](query, key, description["features"])
        return nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


class RayPE(RoRE):
    """Plücker rays added to queries and keys, whose dot product is then the rays' reciprocal product."""

    def __init__(self, shape: ModelShape):
        CameraEncoding.__init__(self, shape)
        self.layers = nn.ModuleList(AddedRays(shape.heads, shape.head_dim) for _ in range(shape.layers))

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, description: dict[str, Tensor], mask: Tensor
    ) -> Tensor:
        """Attention with RoPE, as without cameras, between queries and keys with rays."""
        added = self.layers[layer](description["features"])
        return camera_attention(query, key, value, self.identity, None, mask, mask_invalid=False, added=added)


class RayRoPE(CameraEncoding):
    """Segments of rays up to a predicted distance, as the query's view sees them."""

    def __init__(self, shape: ModelShape):
        super().__init__(shape)
        self.layers = nn.ModuleList(RaySegments(shape.width, shape.head_dim) for _ in range(shape.layers))

    def describe(self, lens: Lens, c2w: Tensor) -> dict[str, Any]:
        """The cameras themselves: distances are predicted layer by layer."""
        return {"lens": lens.expand(*c2w.shape[:2]), "c2w": c2w}

    def add(self, layer: int, tokens: Tensor, description: dict[str, Any]) -> Tensor:
        """The tokens as they are, which are kept to predict distances from."""
        self.tokens: Tensor | None = tokens
        return tokens

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, description: dict[str, Any], mask: Tensor
    ) -> Tensor:
        """Attention with keys and values turned for every view."""
        tokens, self.tokens = self.tokens, None
        size = (self.shape.rows, self.shape.columns)
        return self.layers[layer](query, key, value, tokens, description["lens"], description["c2w"], *size, mask)


CONTESTANTS: dict[str, tuple[str, Callable[[ModelShape], CameraEncoding]]] = {
    "none": ("None", CameraEncoding),
    "raw": ("Raw parameters", RawParameters),
    "plucker-token": ("Plücker (token)", PluckerTokens),
    "plucker-pixel": ("Plücker (pixel)", PluckerPixels),
    "cape": ("CaPE", CaPE),
    "gta": ("GTA", GTA),
    "prope": ("PRoPE", PRoPE),
    "ucpe": ("UCPE", UCPE),
    "ucpe-query-key": ("UCPE, Q/K only", UCPEQueryKey),
    "ucpe-transport": ("UCPE, smallest rotation", UCPETransport),
    "ucpe-lat-up": ("UCPE + Lat-Up", UCPELatUp),
    "raype": ("RayPE", RayPE),
    "rore": ("RoRE", RoRE),
    "rayrope": ("RayRoPE", RayRoPE),
    "urope": ("URoPE", URoPE),
    "sightline": ("Sightline", Sightline),
}
"""Title in tables and class of every contestant by name."""


def find_contestant(name: str) -> Contestant:
    """A contestant by its name, or a user's class by its import path `module:Class`."""
    return find(name, CONTESTANTS, CameraEncoding)


def make_encoding(name: str, shape: ModelShape) -> CameraEncoding:
    """A fresh encoding for a model of this shape."""
    encoding: CameraEncoding = maker_of(name, CONTESTANTS, CameraEncoding)(shape)
    return encoding


def anchored(c2w: Tensor, anchor: Anchor) -> Tensor:
    """Poses (..., views, 4, 4) in the frame of the first view, or upright at its position and heading."""
    if anchor not in ("gravity", "camera"):
        raise ValueError(f"anchor must be 'gravity' or 'camera', got {anchor!r}")
    return anchored_poses(c2w, upright=anchor == "gravity")
