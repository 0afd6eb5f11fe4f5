"""What a model is at its best with, and what it was trained on: a file in its folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path

from ucpe.files import write_json
from ucpe.reading import read_json_object

DEFAULTS_FILE = "generation.json"
"""File in a pipeline folder with what differs from Wan's."""


@dataclass(frozen=True)
class Limits:
    """What training showed a model; None where that is not known. Beyond them is extrapolation."""

    pitch: float | None = None
    """Degrees up or down, at the first frame."""
    roll: float | None = None
    """Degrees to either side, at the first frame."""
    turn: float | None = None
    """Degrees between the first and any other frame."""
    travel: float | None = None
    """Near-plane depths from the first position."""
    min_xfov: float | None = None
    max_xfov: float | None = None


@dataclass(frozen=True)
class Defaults:
    """What a model is generated with where the caller does not say, and the limits of its training."""

    frames: int = 81
    fps: float = 16.0
    height: int = 480
    width: int = 832
    steps: int = 50
    guidance: float = 5.0
    text_tokens: int | None = None
    """Maximum prompt length in tokens; None leaves it to diffusers."""
    negative: str = ""
    scheduler: str | None = None
    """See `ucpe.generation.options.Setup`; None keeps the one in the model's folder."""
    shift: float | None = None
    """Of the scheduler's noise levels; None keeps the model's own."""
    limits: Limits = Limits()

    def save(self, folder: str | Path) -> None:
        """Write them into a pipeline folder."""
        write_json(Path(folder) / DEFAULTS_FILE, asdict(self))

    @classmethod
    def load(cls, folder: str | Path, otherwise: Defaults | None = None) -> Defaults:
        """Those in a pipeline folder; where it has none the given ones, or Wan's."""
        path = Path(folder) / DEFAULTS_FILE
        if not path.is_file():
            return otherwise or cls()
        try:
            values = read_json_object(path)
            return cls(**{**values, "limits": Limits(**values.get("limits", {}))})
        except (TypeError, AttributeError) as error:
            known = ", ".join(field.name for field in fields(cls))
            raise ValueError(f"{path}: expected a JSON object with some of {known} ({error})") from None
