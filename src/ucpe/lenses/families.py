"""The paper's four lens families, as ranges of the unified camera model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ucpe.lenses.base import Lens
from ucpe.lenses.unified import UCM


@dataclass(frozen=True)
class LensFamily:
    """Ranges from which horizontal field of view (degrees) and distortion xi are drawn uniformly."""

    name: str
    xfov: tuple[float, float]
    xi: tuple[float, float]

    def sample(self, generator: torch.Generator | None = None, shape: tuple[int, ...] = ()) -> UCM:
        """Random lens of the family with the given batch shape."""
        draw = torch.rand(2, *shape, generator=generator, dtype=torch.float64, device="cpu")
        low = draw.new_tensor([self.xfov[0], self.xi[0]]).reshape(2, *(1,) * len(shape))
        high = draw.new_tensor([self.xfov[1], self.xi[1]]).reshape(2, *(1,) * len(shape))
        xfov, xi = low + (high - low) * draw
        return UCM(xfov=xfov, xi=xi)

    def typical(self) -> UCM:
        """The lens in the middle of the ranges."""
        return UCM(xfov=sum(self.xfov) / 2, xi=sum(self.xi) / 2)


FAMILIES: dict[str, LensFamily] = {
    family.name: family
    for family in (
        LensFamily("pinhole", xfov=(90, 110), xi=(0, 0)),
        LensFamily("wide", xfov=(110, 140), xi=(0.5, 0.95)),
        LensFamily("fisheye", xfov=(140, 180), xi=(1.05, 2.0)),
        LensFamily("extreme-fisheye", xfov=(160, 200), xi=(1.5, 2.3)),
    )
}
"""The families by name, with the paper's exact ranges (supplement A.4)."""


def sample_lens(generator: torch.Generator | None = None, families: list[str] | None = None) -> tuple[str, Lens]:
    """A family drawn uniformly and a random lens of it."""
    names = list(families or FAMILIES)
    name = names[int(torch.randint(len(names), (), generator=generator, device="cpu"))]
    return name, FAMILIES[name].sample(generator)


def lens_family(lens: Lens) -> str:
    """Name of the paper's family that a UCM lens falls in or is nearest to; for other lenses, of their model."""
    if not isinstance(lens, UCM) or "xfov" not in lens.parameters:
        return lens.kind
    xfov, xi = (float(lens.parameters[name].double().mean()) for name in ("xfov", "xi"))

    def distance(family: LensFamily) -> float:
        spans = ((xfov, *family.xfov, 20), (xi, *family.xi, 0.5))
        outside = sum(max(low - value, value - high, 0) / unit for value, low, high, unit in spans)
        return outside + 1e-3 * sum(abs(value - (low + high) / 2) / unit for value, low, high, unit in spans)

    return min(FAMILIES.values(), key=distance).name
