"""Who takes part in a benchmark: entries by name, and classes of a user's own."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ucpe.files import file_fingerprint

Known = Mapping[str, tuple[str, Any]]
"""Title in tables, and what makes it, of every contestant by name."""


@dataclass(frozen=True)
class Contestant:
    """An entry of a benchmark by name; `version` changes when the source of a user's class does."""

    name: str
    title: str
    version: str = ""


def find(name: str, known: Known, parent: type) -> Contestant:
    """A contestant by name, or a user's subclass of `parent` by its import path `module:Class`."""
    if name in known:
        return Contestant(name, known[name][0])
    found = maker_of(name, known, parent)
    return Contestant(name, found.__name__, file_fingerprint(inspect.getfile(found)))


def maker_of(name: str, known: Known, parent: type) -> Any:
    """What makes a contestant: a function or a class."""
    if name in known:
        return known[name][1]
    module, separator, attribute = name.partition(":")
    if not separator:
        yours = f"a subclass of {parent.__name__} as my_module:MyClass"
        raise ValueError(f"no contestant '{name}'; there are {', '.join(known)}, or {yours}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot import the contestant {name}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, parent)):
        raise ValueError(f"{name} must be a subclass of {parent.__module__}.{parent.__name__}")
    return found
