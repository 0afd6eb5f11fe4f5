"""Command lines as options: tyro's parser, which here says in one line what is wrong."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import is_dataclass, replace
from types import NoneType
from typing import Annotated, Any, Union, cast, get_args

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructTypeInfo,
)

NUMBERS = {int: "a whole number", float: "a number"}
RULE = re.compile(r"^[│|\s]*[─-]{3,}[│|\s]*$", re.MULTILINE)
"""The line between two parts of tyro's messages."""

UNION = r"no type matching (\S+) could be instantiated from \[(.*?)\]\. Got errors: .*"
"""tyro's message about a value that fits none of several types."""

ADDRESS = re.compile(r"(^|=)(?!https?:|ray:)[a-z][a-z0-9+]+://")
"""An address of an object store; taken as a path, it would be a folder called s3:."""

registry = ConstructorRegistry()


def parse(kind: Any, arguments: Sequence[str], prog: str, **options: Any) -> Any:
    """The options of a command; if `kind` is a dictionary of subcommands, those of the one named first.

    Wrong options raise a ValueError of one line.
    """
    if address := next(filter(ADDRESS.search, arguments), None):
        raise ValueError(f"{address}: only paths of this machine are read and written; mount it, or copy what it holds")
    shown = io.StringIO()
    try:
        with redirect_stderr(shown):
            if isinstance(kind, dict):
                parsed = tyro.extras.subcommand_cli_from_dict(kind, args=arguments, prog=prog, registry=registry)
            else:
                parsed = tyro.cli(kind, args=arguments, prog=prog, registry=registry, **options)
    except SystemExit as left:
        if not left.code:
            raise
        raise ValueError(f"{reason(shown.getvalue())} ({prog} --help explains the options)") from None
    sys.stderr.write(shown.getvalue())
    return parsed


def given(options: Any, *names: str) -> dict[str, Any]:
    """Those of these options that were given, by name; of all options if none is named."""
    return {name: value for name in names or vars(options) if (value := getattr(options, name)) is not None}


def reason(message: str) -> str:
    """What is wrong, from the box that tyro draws around it, with options that have a similar name."""
    _, _, below_title = message.partition("\n")
    parts = (re.sub(r"^[│|╰]|[│|╯]$", "", part, flags=re.MULTILINE) for part in RULE.split(below_title))
    wrong, *others = [part for part in parts if part.strip()] or [message]
    found = re.sub(UNION, r"expected \1, got \2", " ".join(wrong.split())).removeprefix("Error parsing ")
    for other in others:
        if "Perhaps you meant" in other:
            similar = re.findall(r"^\s+(--[\w.-]+)", other, re.MULTILINE)
            found += f"; perhaps you meant {' or '.join(dict.fromkeys(similar))}"
        elif "Available subcommands" in other:
            found += f". {' '.join(other.split())}"
    return found


@registry.primitive_rule
def _number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers, with our own error message."""
    if info.type not in NUMBERS:
        return None
    kind: Any = info.type

    def read(texts: list[str]) -> Any:
        try:
            return kind(texts[0])
        except ValueError:
            raise ValueError(f"expected {NUMBERS[kind]}, got {texts[0]!r}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=read,
        is_instance=lambda value: isinstance(value, int | kind),
        str_from_instance=lambda value: [str(value)],
    )


@registry.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Options that may be left out, without a `None` to type."""
    kinds = get_args(info.type)
    if NoneType not in kinds:
        return None
    needed: Any = Union[tuple(kind for kind in kinds if kind is not NoneType)]  # noqa: UP007
    given = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(needed, info.markers))
    if not isinstance(given, PrimitiveConstructorSpec):
        return None
    return replace(
        given,
        is_instance=lambda value: value is None or given.is_instance(value),
        str_from_instance=lambda value: ["None"] if value is None else given.str_from_instance(value),
    )


@registry.struct_rule
def _explained(info: StructTypeInfo) -> StructConstructorSpec | None:
    """Options whose help does not add `(default: None)` or `(default: )`, which says less than their own words."""
    if not is_dataclass(info.type) or _explained in info.markers:
        return None
    spec = ConstructorRegistry.get_struct_spec(replace(info, markers=(*info.markers, _explained)))
    if not isinstance(spec, StructConstructorSpec):
        return None
    silent: Any = tyro.conf.arg(help_behavior_hint="")
    return replace(spec, fields=tuple(
        replace(field, type=cast(Any, Annotated[field.type, silent])) if field.default in (None, (), "") else field
        for field in spec.fields
    ))  # fmt: skip
