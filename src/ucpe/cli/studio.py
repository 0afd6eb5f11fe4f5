"""`ucpe studio`: a page on this machine to make shots: lens, path, prompt, video."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ucpe.cli.parsing import parse


@dataclass
class Studio:
    """Open a page on this machine: design the lens and the path, see exactly what the camera will see, generate."""

    folder: Annotated[Path, tyro.conf.Positional] = Path("studio")
    """Where shots, uploads and results are kept."""
    model: str | None = None
    """Pipeline folder or hub id. [default: the desk model in the package]"""
    adapter: str | None = None
    """Adapter folder, hub id or released .bin. [default: the one inside the model's folder]"""
    port: int = 8765
    """Port to listen on."""
    host: str = "127.0.0.1"
    """Address to listen on; any other than this machine's own needs the token that is printed."""
    browser: bool = True
    """Open the page in a browser."""


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and serve the page."""
    options = parse(Studio, arguments, "ucpe studio")
    if importlib.util.find_spec("nicegui") is None:
        raise ValueError("the page needs NiceGUI, which is not installed: pip install 'ucpe[studio]'")
    if not 0 < options.port < 2**16:
        raise ValueError(f"--port must be between 1 and {2**16 - 1}, got {options.port}")
    host, port = options.host, options.port
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        reason = str(error.strerror or error).partition(" (")[0]
        raise ValueError(f"cannot listen on {host}, port {port}: {reason}") from None
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # waiting threads would take the browser's processors
    from ucpe.studio import server

    studio = server.Studio(options.folder.absolute(), _anywhere(options.model), _anywhere(options.adapter))
    server.serve(studio, host, port, options.browser)


def _anywhere(name: str | None) -> str | None:
    """A model or adapter by a name that leads to it from every folder, as the commands on the page need."""
    return str(Path(name).absolute()) if name and Path(name).exists() else name
