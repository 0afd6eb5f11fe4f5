"""The `ucpe` command: one file per subcommand, nothing computed here."""

from __future__ import annotations

import importlib
import sys

from ucpe.cli.errors import one_line_errors, open_closed_streams

COMMANDS = {
    "lens": "show, convert and fit lenses",
    "trajectory": "show and convert camera paths",
    "encoding": "show what an encoding lets attention see",
    "adapter": "adapter sizes and checkpoints",
    "render": "360 footage through any lens",
    "curate": "clean clips with poses from raw 360 videos",
    "synthesize": "make camera-diverse training clips",
    "dataset": "statistics and export of a dataset",
    "train": "train an adapter or the desk model",
    "generate": "prompt + camera -> video",
    "studio": "a page to make shots: lens, path, prompt, video",
    "check": "did this video follow its camera?",
    "evaluate": "measure camera control of any videos",
    "report": "compare evaluation runs",
    "track": "the camera of a video as a path",
    "match": "transfer realistic rotations to clips",
    "bench": "re-run the paper's comparisons",
}
"""Each command is `ucpe.cli.<name>`, whose `main(arguments)` parses the rest of the line."""


def main() -> None:
    """Run the subcommand named first on the command line."""
    open_closed_streams()
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    named = bool(arguments) and arguments[0] in COMMANDS
    with one_line_errors(f"ucpe {arguments[0]}" if named else "ucpe", debug="--debug" in sys.argv[1:]):
        if named:
            importlib.import_module(f"ucpe.cli.{arguments[0]}").main(_with_values(arguments[1:]))
        elif not arguments or arguments[0] in ("-h", "--help"):
            _explain()
        else:
            raise ValueError(f"no command {arguments[0]!r}; there are {', '.join(COMMANDS)}")


def _with_values(arguments: list[str]) -> list[str]:
    """Arguments with `--up -y` as `--up=-y`, whose value the parser would take for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--up":
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def _explain() -> None:
    lines = [f"  {name:<12} {text}" for name, text in COMMANDS.items()]
    print("usage: ucpe COMMAND ...\n\nCamera control for video transformers.\n\n" + "\n".join(lines))
    print("\nucpe COMMAND --help explains a command; with --debug an error shows its traceback.")
