"""Kernels compiled by numba and kept on disk, never older than their sources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, ...)` that compiles anew when any source in the function's folder has changed.

    numba itself looks at the time and size of the function's own file only, not at the helpers it calls.
    """
    import numba

    def compile(function: Callable[..., Any]) -> Any:
        compiled = numba.njit(cache=True, **options)(function)
        index = compiled._cache._cache_file
        index._source_stamp = (*index._source_stamp, _digest(Path(function.__code__.co_filename).parent))
        return compiled

    return compile


@cache
def _digest(folder: Path) -> str:
    content = b"\0".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
    return hashlib.sha256(content).hexdigest()
