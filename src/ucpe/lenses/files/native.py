"""Our own lens files: the constructor's arguments as JSON or YAML."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from ucpe.files import write_file
from ucpe.lenses.base import Lens
from ucpe.lenses.files.document import Section, batch_entry
from ucpe.lenses.models import MODELS


class Native:
    """`{"model": "ucm", "xfov": 180, "xi": 2.0}`; a list in place of a number makes a batch."""

    name = "ucpe"
    description = "our own .json or .yaml"

    def recognises(self, data: dict[str, Any]) -> bool:
        """Whether a file's mapping is in this format."""
        kind = data.get("model")
        return isinstance(kind, str) and kind in MODELS

    def read(self, content: Section, camera: str | None) -> Lens:
        """The lens of a file, or of batch entry `camera`."""
        return batch_entry(lens_from_dict(content.data), camera, content.file)

    def write(self, lens: Lens, path: Path, height: int, width: int) -> None:
        """Write any lens; no image size is needed."""
        as_json = path.suffix.lower() == ".json"
        data = lens.to_dict()
        write_file(path, json.dumps(data, indent=2) + "\n" if as_json else yaml.safe_dump(data, sort_keys=False))


def lens_from_dict(data: dict[str, Any]) -> Lens:
    """The lens that `lens.to_dict()` described: its `model` and the arguments of that model.

    >>> lens_from_dict({"model": "ucm", "xfov": 180, "xi": 2.0})
    UCM(xfov=180, xi=2)
    """
    arguments = dict(data)
    kind = arguments.pop("model", None)
    if not isinstance(kind, str) or kind not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {kind!r}")
    try:
        return MODELS[kind](**arguments)
    except TypeError as error:
        raise ValueError(f"{kind}: {str(error).split('() ')[-1]}") from None
