"""The paper's published numbers, for comparison only: always shown as quoted, never as measured here."""

from __future__ import annotations

from dataclasses import dataclass

RADIANS_NOTE = (
    "The paper labels RotErr in degrees, but its numbers are radians: |Vec(T) - Vec(T^)| <= |t - t^| + sqrt(2) angle, "
    "so CamMC <= TransErr + sqrt(2) RotErr (radians), which every row would break if RotErr were degrees."
)
"""What to know before comparing pose numbers with the quoted ones."""

PROPE_NOTE = (
    "In the released code a method named prope_absmap never gets its intrinsics, and the authors' scripts train and "
    "evaluate PRoPE under that name: by that code the PRoPE row of Table 1 is GTA with Lat-Up."
)
"""What to know about a quoted row."""


@dataclass(frozen=True)
class QuotedRow:
    """One method of a published table; metrics by our names, in the published units."""

    table: str
    group: str
    method: str
    metrics: dict[str, float]
    parameters: str | None = None


_PANSHOT = ("FoVErr", "K1Err", "K2Err", "PitchErr", "RollErr", "RotErr", "TransErr", "CamMC", "FVD", "FID", "CLIP")
_REALESTATE = ("RotErr", "TransErr", "CamMC", "QAlignImage", "QAlignAesthetic", "QAlignVideo")

RELATIVE, ABSOLUTE, ABLATION = (
    "w/o absolute orientation control",
    "w/ absolute orientation control",
    "w/ absolute orientation control, ablation",
)
"""Groups of the rows of Table 1."""

_OFF, _ON, _CUT = RELATIVE, ABSOLUTE, ABLATION


def _one(group: str, method: str, parameters: str, *values: float) -> QuotedRow:
    return QuotedRow("Table 1", group, method, dict(zip(_PANSHOT, values, strict=True)), parameters)


def _two(method: str, *values: float) -> QuotedRow:
    return QuotedRow("Table 2", "RealEstate10K", method, dict(zip(_REALESTATE, values, strict=True)))


def _speed(method: str, seconds: float, frames: int, resolution: str) -> QuotedRow:
    return QuotedRow("Table D", resolution, method, {"seconds": seconds, "frames": frames})


# fmt: off
QUOTED: tuple[QuotedRow, ...] = (
    _one(_OFF, "ReCamMaster", "354M", 10.25, 0.210, 0.143, 10.00, 7.42, 10.89, 31.44, 37.38, 555.54, 69.91, 24.86),
    _one(_OFF, "Wan CameraCtrl", "1.5B", 10.05, 0.222, 0.142, 9.35, 7.31, 17.04, 35.09, 46.10, 593.10, 67.83, 25.05),
    _one(_OFF, "UCPE", "35.5M", 9.62, 0.174, 0.120, 8.03, 6.64, 4.29, 13.46, 15.94, 569.31, 66.22, 25.11),
    _one(_ON, "ReCamMaster", "354M", 10.04, 0.183, 0.136, 6.62, 5.29, 9.23, 28.95, 33.88, 605.83, 67.07, 24.84),
    _one(_ON, "Wan CameraCtrl", "1.5B", 9.86, 0.230, 0.162, 6.25, 6.01, 17.92, 39.16, 50.32, 554.43, 65.73, 25.01),
    _one(_ON, "UCPE", "35.6M", 8.22, 0.129, 0.102, 4.35, 3.74, 4.12, 15.21, 17.59, 495.14, 63.37, 25.12),
    _one(_CUT, "1/2-dim (128x6)", "141M", 8.39, 0.170, 0.110, 4.11, 3.93, 3.69, 14.03, 16.06, 534.44, 64.88, 25.05),
    _one(_CUT, "1/4-dim (128x3)", "71.0M", 8.47, 0.149, 0.101, 3.94, 4.08, 3.43, 14.26, 16.02, 512.85, 62.86, 25.09),
    _one(_CUT, "1/8-dim (192x1)", "35.6M", 8.22, 0.129, 0.102, 4.35, 3.74, 4.12, 15.21, 17.59, 495.14, 63.37, 25.12),
    _one(_CUT, "1/12-dim (128x1)", "23.8M", 8.96, 0.151, 0.107, 3.91, 3.89, 5.13, 14.54, 17.84, 487.54, 62.98, 25.06),
    _one(_CUT, "Pre-Attn", "35.6M", 8.47, 0.145, 0.108, 4.26, 3.96, 4.03, 15.77, 17.85, 502.73, 63.62, 25.07),
    _one(_CUT, "Post-Attn", "35.6M", 8.91, 0.147, 0.116, 3.95, 3.92, 4.68, 17.47, 20.00, 515.32, 64.65, 25.00),
    _one(_CUT, "PRoPE", "35.6M", 8.84, 0.151, 0.113, 4.18, 3.70, 5.35, 17.52, 20.58, 516.59, 65.00, 25.03),
    _one(_CUT, "GTA", "35.6M", 8.80, 0.157, 0.117, 4.21, 3.69, 5.27, 17.07, 20.14, 497.19, 64.91, 25.04),
    _two("ReCamMaster", 1.10, 5.64, 6.15, 0.9492, 0.5185, 0.9720),
    _two("Wan CameraCtrl", 2.22, 7.42, 8.67, 0.9822, 0.5691, 0.9885),
    _two("CameraCtrl", 1.17, 3.96, 4.59, 0.6877, 0.3306, 0.7338),
    _two("AC3D", 0.62, 2.11, 2.43, 0.7699, 0.3651, 0.8211),
    _two("UCPE", 0.56, 1.25, 1.58, 0.9480, 0.4686, 0.9694),
    _speed("ReCamMaster", 179, 81, "480 x 832"),
    _speed("Wan CameraCtrl", 177, 81, "480 x 832"),
    _speed("CameraCtrl", 17, 16, "256 x 384"),
    _speed("AC3D", 632, 48, "480 x 720"),
    _speed("UCPE", 184, 81, "480 x 832"),
)
# fmt: on
"""Tables 1, 2 and D of the paper."""

TABLES = {"1": "Table 1", "2": "Table 2", "d": "Table D"}
"""Short names of the quoted tables."""


def quoted_rows(table: str) -> list[QuotedRow]:
    """Rows of a published table, by "1", "2" or "D"."""
    name = TABLES.get(table.lower().removeprefix("table").strip())
    if name is None:
        raise ValueError(f"the paper's tables that can be quoted are 1, 2 and D, got {table!r}")
    return [row for row in QUOTED if row.table == name]
