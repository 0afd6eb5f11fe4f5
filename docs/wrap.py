"""Wrap paragraphs and list items of Markdown files that have lines over 120 characters; everything else stays.

python docs/wrap.py [FILE.md ...] [--check]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import textwrap
from pathlib import Path

WIDTH = 120
KEPT = re.compile(r"^\s*(\||#|!\[|<|>|```|:::|---|\[[^\]]*\]:)")
"""Lines that are not prose: tables, headings, pictures, HTML, quotes, fences, directives, addresses of links."""
ITEM = re.compile(r"^(\s*)([-*+]|\d+\.)(\s+)")


def wrapped(text: str) -> str:
    """The text with long prose wrapped."""
    result: list[str] = []
    block: list[str] = []
    fenced = front = False
    for number, line in enumerate([*text.split("\n"), ""]):
        if line.startswith("---") and (number == 0 or front):
            front = not front
        starts = line.lstrip().startswith("```")
        prose = not (fenced or starts or front or not line.strip() or KEPT.match(line))
        if block and (not prose or ITEM.match(line)):
            result += _wrap(block)
            block = []
        if prose:
            block.append(line)
        else:
            result.append(line)
        fenced ^= starts
    return "\n".join(result[:-1])


def _wrap(block: list[str]) -> list[str]:
    if max(map(len, block)) <= WIDTH or any(line.endswith("  ") for line in block):
        return block
    item = ITEM.match(block[0])
    first = item.group() if item else re.match(r"\s*", block[0]).group()  # type: ignore[union-attr]
    words = " ".join(line.strip() for line in [block[0][len(first) :], *block[1:]])
    parts = re.findall(r"(?:`[^`]*`|\[[^\]]*\]\([^)]*\)|\S)+", words)
    lines = textwrap.wrap(
        " ".join(part.replace(" ", "\0") for part in parts), WIDTH, initial_indent=first,
        subsequent_indent=" " * len(first), break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    lines = [line.replace("\0", " ") for line in lines]
    starts_anew = any(ITEM.match(line) or KEPT.match(line) for line in lines[1:])
    return block if starts_anew else lines


def main() -> None:
    """Wrap files, all of the project's unless some are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true", help="only say which files would change")
    options = parser.parse_args()
    tracked = subprocess.run(["git", "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout.split()
    changed = []
    for path in options.files or map(Path, tracked):
        before = path.read_text(encoding="utf-8")
        if (after := wrapped(before)) != before:
            changed.append(path)
            if not options.check:
                path.write_text(after, encoding="utf-8")
    for path in changed:
        print(path)
    raise SystemExit(1 if options.check and changed else 0)


if __name__ == "__main__":
    main()
