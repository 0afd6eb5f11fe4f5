"""Reading files without trusting them.

What a file asks for (nodes, pixels, bytes to inflate) is compared with a named limit before the memory is taken.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


@dataclass(frozen=True)
class Limit:
    """The most that is accepted from a file or an option; the environment variable of its name replaces it."""

    name: str
    usual: int
    unit: str

    @property
    def allowed(self) -> int:
        """The limit in force."""
        text = os.environ.get(self.name, str(self.usual))
        if not text.isdecimal():
            raise ValueError(f"the environment variable {self.name} must be a whole number, got {text!r}")
        return int(text)

    def check(self, amount: float, where: str | Path) -> None:
        """Raise a ValueError that names the limit if `amount` is more."""
        if not amount <= self.allowed:
            raise ValueError(
                f"{where}: more {self.unit} ({amount:,}) than {self.name}={self.allowed} allows; "
                "set that environment variable higher if this is meant"
            )


MAX_TEXT_BYTES = Limit("UCPE_MAX_TEXT_BYTES", 2**28, "bytes of text")
MAX_LINE = Limit("UCPE_MAX_LINE", 2**24, "characters in a line")
MAX_NESTING = Limit("UCPE_MAX_NESTING", 100, "levels of nesting")
MAX_YAML_NODES = Limit("UCPE_MAX_YAML_NODES", 10**6, "YAML values, aliases followed")
MAX_ARRAY_BYTES = Limit("UCPE_MAX_ARRAY_BYTES", 2**31, "bytes of arrays")
MAX_INFLATED_BYTES = Limit("UCPE_MAX_INFLATED_BYTES", 2**31, "bytes when inflated")
MAX_IMAGE_PIXELS = Limit("UCPE_MAX_IMAGE_PIXELS", 2**28, "pixels in an image")
MAX_IMAGE_SIDE = Limit("UCPE_MAX_IMAGE_SIDE", 2**16, "pixels in a row or column")
MAX_FRAMES = Limit("UCPE_MAX_FRAMES", 10**6, "frames")

MAX_NAME, MAX_NAME_PART = 1000, 255
"""Characters of the name of a file that stands in another one, and bytes of each part of it between slashes."""

MAX_NUMBER = 300
"""Digits of a whole number; a float ends at 308."""


def inside(folder: str | Path, name: Any, where: str | Path) -> Path:
    """The path `name` as written in the file `where`; it must not lead out of `folder`.

    Links that lie in the folder are followed: whoever made the folder made them.
    """
    if not isinstance(name, str | os.PathLike) or not str(name) or "\0" in str(name) or len(str(name)) > MAX_NAME:
        raise ValueError(f"{where}: expected the name of a file, found {str(name)[:60]!r}")
    relative = os.path.normpath(name)
    if any(len(os.fsencode(part)) > MAX_NAME_PART for part in relative.split(os.sep)):
        raise ValueError(f"{where}: expected the name of a file, found one of {len(relative)} characters")
    if os.path.isabs(relative) or relative.split(os.sep)[0] == os.pardir:
        raise ValueError(f"{where}: {str(name)!r} leads out of the folder {folder}; only files inside it are read")
    return Path(folder) / relative


def open_bytes(path: str | Path) -> IO[bytes]:
    """A file to read bytes from, inflated on the way if it is gzipped."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path)) if packed else open(path, "rb")


def read_text(path: str | Path) -> str:
    """The text of a UTF-8, UTF-16 or UTF-32 file, with or without a byte order mark or gzip; lines end with \\n."""
    try:
        with open_bytes(path) as file:
            data = file.read(MAX_TEXT_BYTES.allowed + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: a damaged gzip file ({error})") from None
    MAX_TEXT_BYTES.check(len(data), path)
    encoding = json.detect_encoding(data[:4])
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text file (byte {error.start} is not {encoding[:6].upper()})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_lines(path: str | Path) -> list[str]:
    """The lines of a UTF-8 file."""
    lines = read_text(path).splitlines()
    MAX_LINE.check(max(map(len, lines), default=0), path)
    return lines


def read_json(path: str | Path) -> Any:
    """The values in a JSON file; a syntax error says where it is."""
    return parse_json(read_text(path), path)


def read_json_lines(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Each line of a .jsonl file: "FILE, line N" for messages, and its values. Blank lines are skipped."""
    for number, text in enumerate(read_lines(path), start=1):
        if text.strip():
            yield f"{path}, line {number}", parse_json(text, f"{path}, line {number}")


def read_json_object(path: str | Path) -> dict[str, Any]:
    """The object in a JSON file."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, found a {type(content).__name__}")
    return content


def parse_json(text: str, where: str | Path) -> Any:
    """The values in JSON text that stands at `where`."""
    try:
        content = json.loads(text, parse_int=_whole_number)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}, line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from None
    except RecursionError:
        raise ValueError(f"{where}: not JSON (nested more than {MAX_NESTING.allowed} levels deep)") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    _check_nesting(content, where)
    return content


def read_yaml(path: str | Path) -> Any:
    """The values in a YAML or JSON file, safe-loaded; a syntax error says where it is."""
    text = read_text(path)
    return parse_json(text, path) if text.lstrip()[:1] in ("{", "[") else parse_yaml(text, path)


def parse_yaml(text: str, where: str | Path, tags: tuple[str, ...] = ()) -> Any:
    """The values in YAML text that stands at `where`; mappings with one of `tags` are taken as plain ones."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Safe YAML of this document."""

    Loader.add_constructor("tag:yaml.org,2002:int", _yaml_number)
    for tag in tags:
        Loader.add_constructor(tag, lambda loader, node: loader.construct_mapping(node, deep=True))
    try:
        _check_yaml_nesting(yaml.parse(text, Loader=Loader), where)
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        MAX_YAML_NODES.check(_nodes(node, {}), where)
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ValueError(f"{where}{line}: not YAML ({problem})") from None
    except ValueError as error:
        raise ValueError(str(error) if str(error).startswith(str(where)) else f"{where}: {error}") from None


def read_array(path: str | Path) -> np.ndarray:
    """The array in a .npy file; pickles are never loaded."""
    path = Path(path)
    with path.open("rb") as file:
        return _read_npy(file, path.stat().st_size, path)


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays in a .npz file by name; pickles are never loaded."""
    check_archive(path)
    arrays, total = {}, 0
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            total += member.file_size
            MAX_ARRAY_BYTES.check(total, path)
            try:
                with archive.open(member) as file:
                    arrays[member.filename.removesuffix(".npy")] = _read_npy(file, member.file_size, path)
            except (zipfile.BadZipFile, RuntimeError, NotImplementedError, zlib.error, EOFError, OSError) as error:
                raise ValueError(f"{path}: {member.filename} is damaged ({error})") from None
    return arrays


def check_archive(path: str | Path) -> None:
    """Raise a ValueError if a zip file is damaged, or would inflate to more than memory is meant for."""
    try:
        with zipfile.ZipFile(path) as archive:
            inflated = sum(member.file_size for member in archive.infolist())
    except FileNotFoundError:
        raise
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise ValueError(f"{path}: not a whole zip archive ({error})") from None
    if inflated > Path(path).stat().st_size:
        MAX_INFLATED_BYTES.check(inflated, path)


def open_image(path: str | Path) -> Image.Image:
    """The picture in an image file as 8-bit RGB, upright; 16-bit grey is scaled, not clipped."""
    from PIL import Image, ImageOps

    usual, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with Image.open(path) as image:
            MAX_IMAGE_PIXELS.check(image.width * image.height, path)
            return _eight_bit(ImageOps.exif_transpose(image)).convert("RGB")
    except FileNotFoundError:
        raise
    except Exception as error:
        named = str(error).startswith(str(path))
        raise ValueError(str(error) if named else f"{path}: not a readable image ({error})") from None
    finally:
        Image.MAX_IMAGE_PIXELS = usual


def _eight_bit(image: Image.Image) -> Image.Image:
    import numpy as np
    from PIL import Image

    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 65535:
        raise ValueError(f"its values are of mode {image.mode}; save it with 8 or 16 bits a channel")
    return Image.fromarray((values / 257 + 0.5).astype(np.uint8))


def _read_npy(file: Any, size: int, where: str | Path) -> np.ndarray:
    """An array of a .npy stream of `size` bytes, whose header may not promise more than there is."""
    import numpy as np

    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        shape, _, kind = headers[np.lib.format.read_magic(file)](file)
        promised = math.prod(shape) * kind.itemsize
        if min(shape, default=0) < 0 or promised > size:
            raise ValueError(f"it ends early: shape {shape} of {kind} takes {promised:,} bytes")
        MAX_ARRAY_BYTES.check(promised, where)
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:
        named = str(error).startswith(str(where))
        raise ValueError(str(error) if named else f"{where}: not a plain NumPy array ({error})") from None


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _yaml_number(loader: Any, node: Any) -> Any:
    if len(node.value) > MAX_NUMBER:
        raise ValueError(f"a number of {len(node.value)} digits")
    return loader.construct_yaml_int(node)


def _check_nesting(content: Any, where: str | Path) -> None:
    level, depth = [content], 0
    while level := [
        value
        for box in level
        if isinstance(box, dict | list)
        for value in (box.values() if isinstance(box, dict) else box)
        if isinstance(value, dict | list)
    ]:
        depth += 1
        MAX_NESTING.check(depth, where)


def _check_yaml_nesting(events: Iterator[Any], where: str | Path) -> None:
    """Before libyaml, which has no limit of its own, runs out of stack."""
    import yaml

    depth = 0
    for count, event in enumerate(events):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            MAX_NESTING.check(depth, where)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if count % 4096 == 0:
            MAX_YAML_NODES.check(count, where)


def _nodes(node: Any, known: dict[int, float]) -> float:
    """How many values a YAML node holds when its aliases are followed; infinite if it holds itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        children = node.value if isinstance(node.value, list) else []
        parts = [part for child in children for part in (child if isinstance(child, tuple) else (child,))]
        known[id(node)] = 1 + sum(_nodes(part, known) for part in parts)
    return known[id(node)]
