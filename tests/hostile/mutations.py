"""Ways to damage a file: bytes, words, and fields that are present but wrong."""

from __future__ import annotations

import io
import json
import random
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 1e-320, 1e38, -1e38, 1e300, 1e999, -1e999, float("nan"), 2**31, 2**63, 10**18,
    "", " ", "x", "nan", "../../secret.txt", "/etc/hostname", "a\0b", "\x1b[31m", "é" * 300, "0" * 5000,
    [], {}, [[]], [None], {"": None}, [1, "a", None], [[1, 2], [3]], [[[0.0] * 4] * 3], {"model": "ucm"},
)  # fmt: skip
"""What a field is replaced by."""

WORDS = (
    "nan", "inf", "-inf", "1e999", "-1", "0", "", "9" * 400, "1e-320", "1e38", "x", "#", "0x10", "1_000", "١", "\0",
    "--", "18446744073709551616", "-0.0", "1 2 3", "\n", "*a", "&a [*a]", "!!python/name:os.system", "{", "[" * 300,
)  # fmt: skip
"""What a word of a text is replaced by."""


def damage(path: Path, generator: random.Random) -> str:
    """Change a file for the worse and say how."""
    ways = [_bytes]
    if path.suffix in (".json", ".jsonl"):
        ways = [_fields, _fields, _fields, _words, _bytes]
    elif path.suffix in (".yaml", ".yml", ".txt", ".toml", ".csv", ".xml"):
        ways = [_words, _words, _bytes]
    elif path.suffix == ".npy":
        ways = [_array, _bytes]
    elif path.suffix == ".npz":
        ways = [_arrays, _arrays, _bytes]
    elif path.suffix == ".parquet":
        ways = [_table, _table, _table, _bytes]
    elif path.suffix in (".safetensors", ".bin") and path.name != "cameras.bin" and path.name != "images.bin":
        ways = [_weights, _weights, _bytes]
    return generator.choice(ways)(path, generator)


def _bytes(path: Path, generator: random.Random) -> str:
    data = bytearray(path.read_bytes())
    steps = generator.choice((1, 1, 2, 5))
    for _ in range(steps):
        at = generator.randrange(len(data) + 1)
        if generator.random() < 0.5:
            at = min(at, generator.randrange(200))  # headers are where it hurts
        size = generator.choice((1, 1, 2, 4, 8, 64, 1000))
        way = generator.randrange(7)
        if way == 0:
            del data[at:]
        elif way == 1:
            del data[at : at + size]
        elif way == 2:
            data[at:at] = generator.randbytes(size)
        elif way == 3:
            data[at : at + size] = generator.choice((b"\0", b"\xff", b"\x7f")) * len(data[at : at + size])
        elif way == 4:
            data[at:at] = data[at : at + size]
        elif data:
            at = min(at, len(data) - 1)
            data[at] = data[at] ^ (1 << generator.randrange(8)) if way == 5 else generator.randrange(256)
    path.write_bytes(data)
    return f"{steps} changes of bytes"


def _words(path: Path, generator: random.Random) -> str:
    text = path.read_bytes().decode("utf-8", "replace")
    words = list(re.finditer(r"[^\s,:\[\]{}\"<>=]+", text))
    if not words:
        return _bytes(path, generator)
    chosen = generator.choice(words)
    new = generator.choice(WORDS) if generator.random() < 0.8 else generator.choice(words)[0]
    path.write_bytes((text[: chosen.start()] + new + text[chosen.end() :]).encode("utf-8", "replace"))
    return f"the word {chosen[0][:20]!r} becomes {new[:20]!r}"


def _fields(path: Path, generator: random.Random) -> str:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    number = generator.randrange(len(lines)) if lines else 0
    try:
        content = json.loads(lines[number]) if lines else None
    except ValueError:
        return _words(path, generator)
    content, how = _changed(content, generator)
    lines[number : number + 1] = [json.dumps(content)]
    path.write_text("\n".join(lines))
    return how


def _changed(content: Any, generator: random.Random) -> tuple[Any, str]:
    places: list[tuple[Any, Any]] = []

    def visit(box: Any) -> None:
        for key in list(box) if isinstance(box, dict) else range(len(box)):
            places.append((box, key))
            if isinstance(box[key], dict | list):
                visit(box[key])

    value = generator.choice(VALUES)
    if not isinstance(content, dict | list) or not content or generator.random() < 0.05:
        return value, f"everything becomes {str(value)[:20]!r}"
    visit(content)
    shallow = [place for place in places if isinstance(place[0], dict)] or places
    box, key = generator.choice(shallow if generator.random() < 0.7 else places)
    way = generator.random()
    if way < 0.2:
        del box[key]
        return content, f"{key!r} is missing"
    if way < 0.25 and isinstance(box, dict):
        box["unknown"] = value
        return content, "an unknown key"
    box[key] = value
    return content, f"{key!r} becomes {str(value)[:20]!r}"


def _strange_array(array: np.ndarray, generator: random.Random) -> np.ndarray:
    ways = (
        lambda: array.astype(np.float16),
        lambda: array.astype(">f8"),
        lambda: array.astype(np.int64),
        lambda: array.astype(np.complex128),
        lambda: array.astype(str),
        lambda: array.astype("S8"),
        lambda: array > 0,
        lambda: array[:0],
        lambda: array.reshape(-1),
        lambda: array[None],
        lambda: array * np.nan,
        lambda: array * 1e300 * 1e10,
        lambda: array * 1e300,
        lambda: np.array(5.0),
        lambda: np.zeros((1, 2), [("a", "f8"), ("b", "U3")]),
        lambda: array.T,
        lambda: np.where(np.arange(array.size).reshape(array.shape) == array.size // 2, np.inf, array),
        lambda: np.zeros_like(array),
        lambda: np.array([0, 400_000_000]),
        lambda: np.datetime64("2020-01-01") + np.zeros(array.shape, int),
    )
    with np.errstate(all="ignore"):
        return generator.choice(ways)()


def _array(path: Path, generator: random.Random) -> str:
    array = _strange_array(np.load(path), generator)
    np.save(path, array)
    return f"an array of {array.dtype} {array.shape}"


def _arrays(path: Path, generator: random.Random) -> str:
    with np.load(path) as file:
        arrays = dict(file)
    name = generator.choice(list(arrays))
    if generator.random() < 0.15:
        del arrays[name]
        np.savez(path, **arrays)
        return f"no array {name!r}"
    if generator.random() < 0.15:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}.npy", _promising((10 ** generator.randrange(3, 14), 4, 4)))
        return f"{name!r} promises more than it holds"
    arrays[name] = _strange_array(arrays[name], generator)
    np.savez(path, **arrays)
    return f"{name!r} becomes {arrays[name].dtype} {arrays[name].shape}"


def _promising(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"shape": shape, "fortran_order": False, "descr": "<f8"})
    return buffer.getvalue()


def _table(path: Path, generator: random.Random) -> str:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    name = generator.choice(table.column_names)
    way = generator.randrange(4)
    if way == 0:
        table, how = table.drop_columns([name]), f"no column {name!r}"
    elif way == 1:
        index = table.column_names.index(name)
        table = table.set_column(index, name, pa.nulls(table.num_rows, table.schema.field(name).type))
        how = f"{name!r} is null"
    elif way == 2:
        other = generator.choice([pa.array([value] * table.num_rows) for value in ("x", 1.5, 7, b"a", True)])
        table, how = table.set_column(table.column_names.index(name), name, other), f"{name!r} has another type"
    else:
        rows, how = table.to_pylist(), ""
        rows, how = _changed(rows, generator)
        try:
            table = pa.Table.from_pylist(rows, table.schema)
        except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError, UnicodeError):
            table, how = table.slice(0, 0), "no rows"
    parquet.write_table(table, path)
    return how


def _weights(path: Path, generator: random.Random) -> str:
    import torch
    from safetensors.torch import load_file, save_file

    binary = path.suffix == ".bin"
    state: dict[Any, Any] = torch.load(path, weights_only=True) if binary else load_file(path)
    name = generator.choice(list(state))
    value = state[name]
    changes: dict[str, Any] = {
        "nan": lambda: torch.full_like(value, torch.nan),
        "inf": lambda: value * torch.inf,
        "half as long": lambda: value[: len(value) // 2] if value.ndim else value,
        "no rows": lambda: value[:0] if value.ndim else value,
        "flat": lambda: value.reshape(-1),
        "whole numbers": lambda: value.to(torch.int64),
        "complex": lambda: value.to(torch.complex64) if binary else value.half(),
        "double": lambda: value.double(),
        "scalar": lambda: torch.zeros(()),
    }
    if binary:
        changes["expanded"] = lambda: torch.zeros(1).expand(10**6, 10**6)
        changes["text"] = lambda: "x"
    how = generator.choice([*changes, "missing", "renamed", "another block", "whole number as a name"])
    if how in changes:
        state[name] = changes[how]()
    else:
        del state[name]
        far = re.sub(r"blocks\.\d+", "blocks.99999999", name)
        new = {"renamed": f"{name}x", "another block": far, "whole number as a name": 7 if binary else "7"}.get(how)
        if new is not None:
            state[new] = value
    if binary:
        torch.save(state, path)
    else:
        save_file({key: tensor.contiguous() for key, tensor in state.items()}, path)
    return f"{name}: {how}"
