"""The tokens of one process, where diffusers' context parallelism splits a video between several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from diffusers import __version__ as diffusers_version
from torch import Tensor, distributed, nn


@dataclass(frozen=True)
class TokenShare:
    """Which tokens of a video this process has."""

    lengths: tuple[int, ...]
    """Tokens of each process, in order."""
    rank: int
    group: Any

    @property
    def part(self) -> slice:
        """Where this process's tokens are among all."""
        start = sum(self.lengths[: self.rank])
        return slice(start, start + self.lengths[self.rank])

    def gather(self, x: Tensor) -> Tensor:
        """The tokens (..., all tokens, channels) of all processes, each giving its own (..., tokens, channels)."""
        from torch.distributed.nn.functional import all_gather

        longest = max(self.lengths)
        padded = nn.functional.pad(x, (0, 0, 0, longest - x.shape[-2])).contiguous()
        parts = all_gather(padded, group=self.group)
        return torch.cat([part[..., :length, :] for part, length in zip(parts, self.lengths)], dim=-2)


def token_share(transformer: nn.Module, total: int, here: int) -> TokenShare | None:
    """This process's share of a video's tokens where a module got only some of them, else None."""
    config = getattr(getattr(transformer, "_parallel_config", None), "context_parallel_config", None)
    if here == total or config is None:
        return None
    mesh = getattr(config, "_flattened_mesh", None)
    if mesh is None:
        raise ValueError(
            f"diffusers {diffusers_version} keeps the processes of context parallelism elsewhere than 0.42, for which "
            "camera adapters are written: install diffusers 0.42, or run without enable_parallelism"
        )
    group = mesh.get_group()
    count, rank = distributed.get_world_size(group), distributed.get_rank(group)
    lengths = tuple(total // count + (index < total % count) for index in range(count))
    if lengths[rank] != here:
        raise ValueError(
            f"this process has {here} of {total} tokens, where an even split over {count} gives it {lengths[rank]}: "
            "camera adapters follow the context parallelism of the model's own plan only"
        )
    return TokenShare(lengths, rank, group)
