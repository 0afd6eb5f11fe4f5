"""The cameras of a batch, as an adapter needs them during a call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ucpe.adapters.backbones import TokenGrid

if TYPE_CHECKING:
    from ucpe.encodings import Operator


@dataclass(frozen=True)
class CameraCondition:
    """Cameras of a batch of clips, encoded once for all blocks and denoising steps.

    `operator` acts inside attention; `features` is what an adapter's input layer eats: the Lat-Up map
    (batch, tokens, 3) or Sightline's features (batch, tokens, 27) of a `CameraAdapter`, the raw parameters
    (batch, frames, 14) of a `ReCamMaster`, the packed Plücker video (batch, frames, channels, height, width) of a
    `CameraCtrl`.
    """

    grid: TokenGrid
    batch: int
    operator: Operator | None = None
    features: Tensor | None = None
    rays: Tensor | None = None  # (batch, tokens, 6) Plücker rays, for encodings that learn from them

    @property
    def device(self) -> torch.device:
        """Where the encoded cameras are."""
        encoded = self.features if self.operator is None else self.operator.blocks
        assert encoded is not None
        return encoded.device

    def __len__(self) -> int:
        return self.batch

    def __getitem__(self, index: Any) -> CameraCondition:
        """The condition of some clips, chosen by a slice, a list or a tensor of numbers."""
        chosen = torch.arange(self.batch)[index]
        if chosen.ndim == 0:
            chosen = chosen[None]
        return replace(
            self,
            batch=len(chosen),
            operator=None if self.operator is None else self.operator[chosen],
            **{name: t[chosen.to(t.device)] for name in ("features", "rays") if (t := getattr(self, name)) is not None},
        )

    def repeat(self, times: int) -> CameraCondition:
        """The whole batch `times` over, as for guidance in one pass or several videos of the same cameras."""
        return self[list(range(self.batch)) * times]

    def to(self, *args: Any, **kwargs: Any) -> CameraCondition:
        """The same cameras on another device."""
        return replace(
            self,
            operator=None if self.operator is None else self.operator.to(*args, **kwargs),
            **{name: t.to(*args, **kwargs) for name in ("features", "rays") if (t := getattr(self, name)) is not None},
        )

    def check(self, batch: int, grid: TokenGrid) -> None:
        """Raise ValueError unless these are the cameras of a batch of that size and token grid."""
        if batch != self.batch:
            raise ValueError(
                f"the camera is for a batch of {self.batch} but the transformer was called with a batch of {batch}; "
                "condition.repeat(n) serves several videos of the same cameras, or guidance in one pass"
            )
        if grid.frames != self.grid.frames:
            raise ValueError(
                f"the camera has {self.grid.frames} latent frames but the transformer was called with {grid.frames}"
            )
        if grid != self.grid:
            raise ValueError(
                f"the camera is for {self.grid.rows} x {self.grid.columns} tokens a frame but the transformer was "
                f"called with {grid.rows} x {grid.columns}; encode it with the height and width of the video"
            )
