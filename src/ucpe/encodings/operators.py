"""Per-token operators that put cameras into attention: CaPE, GTA, PRoPE, UCPE, URoPE and our Sightline."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from ucpe.encodings.application import apply_blocks
from ucpe.encodings.frames import (
    Frame,
    Position,
    as_poses,
    ray_frames_of_poses,
    token_grid,
    token_rays,
)
from ucpe.encodings.sightings import sightings
from ucpe.lenses.base import Lens
from ucpe.trajectories.rotations import invert_pose

Encoding: TypeAlias = Literal["ucpe", "gta", "prope", "cape", "urope", "sightline"]

ENCODINGS = {
    "ucpe": "one rigid transform per ray: any lens",
    "gta": "one rigid transform per camera: pose, no lens",
    "prope": "one projective transform per camera: pose and pinhole intrinsics",
    "cape": "GTA on queries and keys only",
    "urope": "RoPE at the place where the query's camera sees points of the key's ray: any lens",
    "sightline": "UCPE on half of a head, URoPE on the other half: any lens",
}
"""Relative encodings by name, and what each knows."""

PAIRWISE = ("urope", "sightline")
"""Encodings in which what a key tells depends on the query's camera: keys and values are turned for each of these."""

LEARNED_ENCODINGS = {
    "raype": "Plücker rays added to queries and keys: any lens",
    "rore": "queries and keys turned by learned functions of Plücker rays: any lens",
}
"""Encodings whose attention layers have parameters of their own, and what each knows."""

ROPE_BASE = 100.0
"""Ratio between the highest and (almost) the lowest RoPE frequency, as in PRoPE."""

DEPTHS = (1.0, 2.0, 4.0)
"""Distances along a key's ray, in near-plane depths, of the points that URoPE and Sightline look at."""

LARGE_TRANSLATION = 10.0
"""Distance from the anchor, in near-plane depths, beyond which attention logits blow up."""


@dataclass(frozen=True, eq=False, repr=False)
class Operator:
    """Block-diagonal matrix D per token: 4 x 4 camera blocks on the first channels of a head, RoPE on the rest.

    Attention uses D^T on queries, D^-1 on keys and values, D on outputs, so that tokens meet through D_1 D_2^-1
    only. Applies to tensors (..., heads, tokens, head_dim) whose leading dimensions broadcast against its own.
    Never materialised as head_dim x head_dim; one operator serves all blocks and denoising steps of a model.

    Where it has `seen_cosine`, the RoPE of keys and values depends on the camera of the query (a view), which sees
    them somewhere in its own image.
    """

    blocks: Tensor  # (..., tokens or cameras, 4, 4)
    inverse: Tensor  # (..., tokens or cameras, 4, 4)
    _: KW_ONLY
    head_dim: int
    tokens_per_block: int = 1
    cosine: Tensor | None = None  # (tokens, angles) or None without RoPE; an angle turns two channels
    sine: Tensor | None = None  # (tokens, angles)
    seen_cosine: Tensor | None = None  # (..., cameras, heads or 1, tokens, angles) of keys, None if as cosine
    seen_sine: Tensor | None = None  # (..., cameras, heads or 1, tokens, angles)
    camera_tokens: int = 1
    first_token: int = 0
    valid: Tensor | None = None  # (..., tokens) bool, None if all are
    transforms_value: bool = True
    anchor: Tensor | None = None  # (..., 4, 4) pose of the world origin; (..., cameras, 4, 4) with views

    def query(self, x: Tensor) -> Tensor:
        """D^T x for queries (..., heads, tokens, head_dim)."""
        return self._apply(x, self.blocks, transpose=True, forward=False)

    def key(self, x: Tensor, views: slice | None = None) -> Tensor:
        """D^-1 x for keys (..., heads, tokens, head_dim); with `views`, as each sees them: (..., views, heads, ...)."""
        return self._apply(x, self.inverse, forward=False, views=views)

    def value(self, x: Tensor, views: slice | None = None) -> Tensor:
        """D^-1 x for values (..., heads, tokens, head_dim), with `views` as for keys; CaPE leaves them alone."""
        return self._apply(x, self.inverse, forward=False, views=views) if self.transforms_value else x

    def output(self, x: Tensor) -> Tensor:
        """D x for attention outputs (..., heads, tokens, head_dim); CaPE leaves them alone."""
        return self._apply(x, self.blocks, forward=True) if self.transforms_value else x

    @property
    def batch_shape(self) -> torch.Size:
        """Leading dimensions, before heads and tokens."""
        return self.blocks.shape[:-3]

    @property
    def token_count(self) -> int:
        """Number of tokens."""
        return self.blocks.shape[-3] * self.tokens_per_block

    def view_groups(self, most: int) -> Iterator[tuple[slice, slice]]:
        """The cameras of these tokens' queries, at most `most` at a time, and the range of their tokens.

        A camera of which only some tokens are here comes alone.
        """
        if self.seen_cosine is None:
            raise ValueError("this operator treats all cameras alike and knows no views")
        first, last, count = self.first_token, self.first_token + self.token_count, self.camera_tokens
        camera = first // count
        while camera * count < last:
            whole = (last // count - camera) if camera * count >= first else 0
            group = max(1, min(most, whole))
            start, stop = max(camera * count, first), min((camera + group) * count, last)
            yield slice(camera, camera + group), slice(start - first, stop - first)
            camera += group

    def to(self, *args: Any, **kwargs: Any) -> Operator:
        """The same operator on another device, or in another dtype no lower than float32."""
        moved = {name: _move(getattr(self, name), args, kwargs) for name in ("blocks", "inverse", *_ANGLES)}
        device = self.blocks.to(*args, **kwargs).device
        return self.replaced(
            **moved,
            valid=None if self.valid is None else self.valid.to(device),
            anchor=None if self.anchor is None else self.anchor.to(device),
        )

    def __getitem__(self, index: Any) -> Operator:
        """The operator of one batch entry or slice, indexed along `batch_shape`."""
        if not self.batch_shape:
            raise IndexError("this operator has no batch dimension to index")
        names = ("blocks", "inverse", "seen_cosine", "seen_sine", "valid", "anchor")
        return self.replaced(**{name: None if (t := getattr(self, name)) is None else t[index] for name in names})

    def tokens(self, part: slice) -> Operator:
        """The operator of a range of tokens, for context parallelism or for cross-attention between views."""
        start, stop, step = part.indices(self.token_count)
        if step != 1 and self.seen_cosine is not None:
            raise ValueError(f"tokens of an operator with views are taken in ranges without gaps, got a step of {step}")
        count = self.tokens_per_block
        whole = step == 1 and start % count == 0 and stop % count == 0
        operator = self if whole else self._per_token()
        coarse = slice(start // count, stop // count) if whole else part
        return operator.replaced(
            blocks=operator.blocks[..., coarse, :, :],
            inverse=operator.inverse[..., coarse, :, :],
            **{name: None if (t := getattr(self, name)) is None else t[..., part, :] for name in _ANGLES},
            first_token=self.first_token + start,
            valid=None if self.valid is None else self.valid[..., part],
        )

    @staticmethod
    def stack(operators: Sequence[Operator]) -> Operator:
        """One operator for a batch of clips, whose lenses may be of different models, along a new first dimension."""
        return _join(operators, lambda tensors, _: torch.stack(tensors), shared_tokens=True)

    @staticmethod
    def cat(operators: Sequence[Operator]) -> Operator:
        """One operator for cameras of different models in one clip, along tokens; give them all the same anchor."""
        check_anchors(operators)
        operators = [operator._per_token() for operator in operators]
        return _join(operators, lambda tensors, dim: torch.cat(tensors, dim=dim), shared_tokens=False)

    def __repr__(self) -> str:
        batch = f"batch {tuple(self.batch_shape)}, " if self.batch_shape else ""
        blind = "" if self.valid is None else f", {int((~self.valid).sum())} without a ray"
        rope = "no RoPE" if self.cosine is None else "with RoPE" if self.seen_cosine is None else "RoPE by view"
        return f"Operator({batch}{self.token_count} tokens{blind}, heads of {self.head_dim}, {rope})"

    def _apply(
        self, x: Tensor, blocks: Tensor, *, transpose: bool = False, forward: bool, views: slice | None = None
    ) -> Tensor:
        if x.shape[-1] != self.head_dim or x.shape[-2] != self.token_count or x.ndim < 3:
            raise ValueError(
                f"this operator is for tensors (..., heads, {self.token_count} tokens, {self.head_dim} channels), "
                f"got {tuple(x.shape)}"
            )
        cosine, sine = self.cosine, self.sine
        if views is not None and self.seen_cosine is not None and self.seen_sine is not None:
            cosine, sine = self.seen_cosine[..., views, :, :, :], self.seen_sine[..., views, :, :, :]
            x = x.unsqueeze(-4)
            x = x.expand(*x.shape[:-4], cosine.shape[-4], *x.shape[-3:])
            blocks = blocks.unsqueeze(-4)
        return apply_blocks(x, blocks, cosine, sine, self.tokens_per_block, transpose=transpose, forward=forward)

    def _per_token(self) -> Operator:
        if self.tokens_per_block == 1:
            return self
        count = self.tokens_per_block
        blocks, inverse = (t.repeat_interleave(count, dim=-3) for t in (self.blocks, self.inverse))
        return self.replaced(blocks=blocks, inverse=inverse, tokens_per_block=1)

    def replaced(self, **changes: Any) -> Operator:
        """The same operator with other tensors, by the names of the constructor."""
        return replace(self, **changes)


def camera_operator(
    encoding: Encoding,
    lens: Lens,  # batch shape broadcasts against (..., N)
    c2w: Tensor,  # (..., N, 4, 4)
    height: int,
    width: int,
    head_dim: int,
    *,
    rope: bool = True,
    position: Position = "center",
    frame: Frame = "paper",
    anchor: Tensor | bool = True,  # (..., 4, 4), or whether to anchor at the first camera
    heads: int = 1,
    depths: Sequence[float] = DEPTHS,
    dtype: torch.dtype = torch.float32,
) -> Operator:
    """Operator of N cameras with height x width tokens each, frame-major as Wan flattens its latents.

    `encoding` is a key of `ENCODINGS`. Half of a head carries camera blocks and half RoPE over token columns and rows
    (a quarter each), or all of it camera blocks if not `rope`; "urope" gives all of it to RoPE. The world is moved to
    the first camera of each clip, which changes no attention and keeps numbers small; operators that meet in a
    cross-attention must share one `anchor`. `position` and `frame` are those of `ray_frames`. "urope" and "sightline"
    look at points at the given `depths` along every ray, dealt out over the frequencies of all `heads`; theirs are
    parts of one operator of all cameras (`tokens`). Built in float64, kept in `dtype`.
    """
    _check_request(encoding, head_dim, rope, dtype)
    pairwise = encoding in PAIRWISE
    world = c2w = _per_camera(lens, as_poses(c2w))
    origin = _anchor_pose(c2w, anchor)
    c2w = c2w if origin is None else invert_pose(origin)[..., None, :, :] @ c2w
    _warn_of_large_translations(c2w)
    if encoding in ("ucpe", "sightline"):
        ray_to_world, valid = ray_frames_of_poses(lens, c2w, height, width, frame, position)
        inverse = ray_to_world.flatten(-5, -3)
        blocks = invert_pose(inverse)
        tokens_per_block = 1
    else:
        valid = token_rays(lens, height, width, position, c2w).valid
        valid = valid.expand(*c2w.shape[:-2], height, width)
        inverse, blocks = c2w, invert_pose(c2w)
        if encoding == "urope":
            inverse = blocks = torch.eye(4, dtype=c2w.dtype, device=c2w.device).expand_as(c2w)
        if encoding == "prope":
            intrinsics = normalised_intrinsics(lens, height, width).to(c2w)
            blocks = _lift(intrinsics) @ blocks
            inverse = inverse @ _lift(torch.linalg.inv(intrinsics))
        tokens_per_block = height * width
    angles: dict[str, Any] = {}
    if rope:
        frequency = _rope_frequency(head_dim // (4 if encoding == "urope" else 8), c2w)
        angles["cosine"], angles["sine"] = _rope_coefficients(c2w.shape[-3], height, width, frequency)
    if pairwise:
        places = sightings(lens, c2w, height, width, depths, position=position)
        places = places - token_grid(height, width, position, c2w)[0, 0]
        angles["seen_cosine"], angles["seen_sine"] = _seen_coefficients(places, frequency, heads)
    return Operator(
        blocks.to(dtype),
        inverse.to(dtype),
        head_dim=head_dim,
        tokens_per_block=tokens_per_block,
        **{name: angle.to(dtype) for name, angle in angles.items()},
        camera_tokens=height * width,
        valid=None if valid.all() else valid.flatten(-3),
        transforms_value=encoding != "cape",
        anchor=world if pairwise else origin,
    )


def normalised_intrinsics(lens: Lens, height: int, width: int) -> Tensor:
    """PRoPE's K (*batch, 3, 3): image plane to [-1/2, 1/2]^2, so that it does not depend on the image's resolution."""
    matrix = lens.intrinsics(height, width).to(torch.float64)
    size = torch.tensor([width, height, 1.0], dtype=matrix.dtype, device=matrix.device)
    centre = torch.tensor([[0, 0, 0.5], [0, 0, 0.5], [0, 0, 0]], dtype=matrix.dtype, device=matrix.device)
    return matrix / size[:, None] - centre


def _rope_frequency(count: int, like: Tensor) -> Tensor:
    """Angles per token (count,) from 1 radian down to almost 1 / `ROPE_BASE`."""
    return ROPE_BASE ** -(_counting(count, like) / count)


def _counting(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, dtype=like.dtype, device=like.device)


def _rope_coefficients(frames: int, height: int, width: int, frequency: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine (tokens, 2 x frequencies): angles of the column, then of the row, of every token."""
    column = _counting(width, frequency)[:, None] * frequency
    row = _counting(height, frequency)[:, None] * frequency
    shape = (frames, height, width, len(frequency))
    angles = torch.cat([column.expand(shape), row[:, None].expand(shape)], dim=-1).flatten(0, 2)
    return angles.cos(), angles.sin()


def _seen_coefficients(
    places: Tensor,  # (..., cameras, depths, tokens, 2) in tokens
    frequency: Tensor,  # (frequencies,)
    heads: int,
) -> tuple[Tensor, Tensor]:
    """Cosine and sine (..., cameras, heads, tokens, 2 x frequencies) of columns and rows.

    Neighbouring frequencies look at different depths, and so do neighbouring heads at the same frequency.
    """
    numbers = _counting(len(frequency), frequency) + _counting(heads, frequency)[:, None]
    depth = (numbers % places.shape[-3]).long()
    chosen = places.movedim(-3, -1)[..., depth].movedim(-2, -4)  # (..., cameras, heads, tokens, 2, frequencies)
    angles = (chosen * frequency).flatten(-2)
    return angles.cos(), angles.sin()


def _lift(matrix: Tensor) -> Tensor:
    """Matrices (..., 3, 3) as (..., 4, 4) that leave the homogeneous coordinate alone."""
    lifted = torch.nn.functional.pad(matrix, (0, 1, 0, 1))
    lifted[..., 3, 3] = 1
    return lifted


def _per_camera(lens: Lens, c2w: Tensor) -> Tensor:
    """Poses (..., N, 4, 4) with one entry for every camera that lens and poses together make."""
    try:
        shape = torch.broadcast_shapes(lens.batch_shape, c2w.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"a lens of batch shape {tuple(lens.batch_shape)} does not fit poses of {tuple(c2w.shape[:-2])} cameras"
        ) from None
    return c2w.expand(*shape, 4, 4)


def _anchor_pose(c2w: Tensor, anchor: Tensor | bool) -> Tensor | None:
    if isinstance(anchor, Tensor):
        return as_poses(anchor[..., None, :, :])[..., 0, :, :].to(c2w.device).expand(*c2w.shape[:-3], 4, 4)
    return c2w[..., 0, :, :] if anchor else None


def _check_request(encoding: str, head_dim: int, rope: bool, dtype: torch.dtype) -> None:
    if encoding not in ENCODINGS:
        raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, got {encoding!r}")
    if not rope and encoding in PAIRWISE:
        raise ValueError(f"{encoding} is made of RoPE and cannot do without")
    multiple = 8 if rope else 4
    if head_dim < multiple or head_dim % multiple:
        raise ValueError(
            f"head_dim must be a multiple of {multiple} {'with' if rope else 'without'} RoPE, got {head_dim}"
        )
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"operators are kept in float32 or float64 whatever they are applied to, got {dtype}")


def _warn_of_large_translations(c2w: Tensor) -> None:
    distance = c2w[..., :3, 3].detach().norm(dim=-1).max().item()
    if distance > LARGE_TRANSLATION:
        warnings.warn(
            f"a camera is {distance:.3g} units from the first one: relative encodings blow up beyond about "
            f"{LARGE_TRANSLATION:g}; scale translations to units of the scene's near-plane depth",
            stacklevel=3,
        )


def check_anchors(operators: Sequence[Operator]) -> None:
    """Raise ValueError unless all operators see the same world."""
    first = operators[0].anchor if operators else None
    for other in (operator.anchor for operator in operators[1:]):
        if first is other:
            continue
        if first is None or other is None or not _same_pose(first, other):
            raise ValueError(
                "operators that meet in one attention must share their world: give camera_operator the same anchor=, "
                "or, where cameras see each other's rays, take both with .tokens() from one operator of all cameras"
            )


def _same_pose(first: Tensor, other: Tensor) -> bool:
    try:
        return bool((first - other).abs().max() < 1e-6)
    except RuntimeError:
        return False


def _join(operators: Sequence[Operator], join: Any, *, shared_tokens: bool) -> Operator:
    if not operators:
        raise ValueError("there are no operators to join")
    first = operators[0]
    if first.seen_cosine is not None and not shared_tokens:
        raise ValueError("cameras that see each other's rays are built into one operator, not joined afterwards")
    for operator in operators[1:]:
        for name in ("head_dim", "tokens_per_block", "transforms_value"):
            if getattr(operator, name) != getattr(first, name):
                raise ValueError(f"operators differ in {name}: {getattr(first, name)}, {getattr(operator, name)}")
        ropes = [(o.cosine is None, o.seen_cosine is None) for o in (first, operator)]
        if ropes[0] != ropes[1] or (shared_tokens and operator.token_count != first.token_count):
            raise ValueError(f"operators differ: {first!r}, {operator!r}")
        same_grid = operator.cosine is None or first.cosine is None or torch.equal(operator.cosine, first.cosine)
        if shared_tokens and not same_grid:
            raise ValueError("operators of one batch must have the same token grid")
    changes = {name: join([getattr(o, name) for o in operators], -3) for name in ("blocks", "inverse")}
    angles = ("seen_cosine", "seen_sine") if shared_tokens else ("cosine", "sine")
    if getattr(first, angles[0]) is not None:
        changes |= {name: join([getattr(o, name) for o in operators], 0) for name in angles}
    if any(operator.valid is not None for operator in operators):
        changes["valid"] = join([_valid(operator) for operator in operators], -1)
    if shared_tokens:
        anchors = [operator.anchor for operator in operators]
        changes["anchor"] = None if any(a is None for a in anchors) else join(anchors, 0)
    return first.replaced(**changes)


def _valid(operator: Operator) -> Tensor:
    if operator.valid is not None:
        return operator.valid
    return torch.ones(*operator.batch_shape, operator.token_count, dtype=torch.bool, device=operator.blocks.device)


_ANGLES = ("cosine", "sine", "seen_cosine", "seen_sine")


def _move(tensor: Tensor | None, args: Any, kwargs: Any) -> Tensor | None:
    if tensor is None:
        return None
    moved = tensor.to(*args, **kwargs)
    return moved if moved.dtype in (torch.float32, torch.float64) else moved.to(torch.float32)
