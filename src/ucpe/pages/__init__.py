"""Self-contained HTML pages: one stylesheet, one frame, one set of drawings; templates lie beside what fills them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render_page(template: str, title: str, width: str = "1240px", **values: Any) -> str:
    """The page of a template, named by its path inside the package; text among the values is escaped."""
    return _environment().get_template(template).render(title=title, width=width, **values) + "\n"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
