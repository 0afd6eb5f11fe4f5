"""What the command line shows when something goes wrong: one line, never a traceback unless asked for."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

INTERRUPTED = 130
"""Exit code after Ctrl-C, as a shell gives it."""

CLOSED_PIPE = 141
"""Exit code when nobody reads the output any more, as a shell gives it."""

UNEXPECTED = 70
"""Exit code of an error that is a mistake in the program."""

MAX_MESSAGE = 2000
"""Maximum number of characters of a message that are shown."""

FILE_ERRORS = {
    "av.error.FFmpegError",
    "cv2.error",
    "PIL.Image.DecompressionBombError",
    "pyarrow.lib.ArrowException",
    "safetensors_rust.SafetensorError",
    "tarfile.TarError",
    "yaml.error.YAMLError",
    "zipfile.BadZipFile",
    "zlib.error",
}
"""Errors of libraries that read files; by name, so that these libraries need not be imported."""


def open_closed_streams() -> None:
    """Give a command that was started with closed streams (cron, `>&-`) something to read from and write to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115


@contextmanager
def one_line_errors(command: str, debug: bool = False) -> Iterator[None]:
    """Turn errors inside the block into one line on stderr and an exit code; `debug` shows tracebacks as well."""
    with warnings.catch_warnings(), _ending_in_order():
        warnings.showwarning = _show_warning(command)
        try:
            yield
            sys.stdout.flush()
        except KeyboardInterrupt as stop:
            _leave(f"{command}: {str(stop) or 'stopped'}", INTERRUPTED)
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _nobody_reads():
                _drop_unwritten()
                raise SystemExit(CLOSED_PIPE) from None
            if debug:
                traceback.print_exc()
            message = expected_message(error)
            if message is not None:
                _leave(f"{command}: {message}", 1)
            _leave(f"{command}: {_unexpected(error, debug)}", UNEXPECTED)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM end the block like Ctrl-C: what was begun is tidied up, and one line says so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt("ended by SIGTERM")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def expected_message(error: BaseException) -> str | None:
    """What to tell a user about an error that input or the machine causes; None for a mistake in the program."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    if isinstance(error, MemoryError) or "torch.OutOfMemoryError" in names or "can't allocate memory" in str(error):
        return f"not enough memory{_detail(error)}"
    if isinstance(error, RecursionError):
        return "the input is nested too deeply"
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("ucpe"):
        return f"this needs the package {error.name}, which is not installed"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    if isinstance(error, ValueError | OSError | ImportError | OverflowError) or names & FILE_ERRORS:
        return str(error) or type(error).__name__
    return None


def _unexpected(error: Exception, debug: bool) -> str:
    summary = f"unexpected {type(error).__name__}{_detail(error)}"
    if debug:
        return summary
    import tempfile

    try:
        handle, path = tempfile.mkstemp(prefix="ucpe-report-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{' '.join(sys.argv)}\n\n{''.join(traceback.format_exception(error))}")
    except OSError:
        return f"{summary}; --debug shows where"
    return f"{summary}; the full report is in {path} (--debug shows it here)"


def _detail(error: BaseException) -> str:
    return f": {error}" if str(error) else ""


def _leave(line: str, code: int) -> None:
    with suppress(OSError):
        print(_one_line(line), file=sys.stderr)
    _drop_unwritten()
    raise SystemExit(code) from None


def _nobody_reads() -> bool:
    """Whether stdout or stderr is a pipe whose reader has gone."""
    watch = select.poll()
    for stream in (sys.stdout, sys.stderr):
        watch.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))


def _drop_unwritten() -> None:
    """Forget output that cannot be written; Python would complain about it on exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _one_line(text: str) -> str:
    """Text without line breaks and without characters that steer a terminal."""
    joined = " ".join(text.split())
    shown = joined if len(joined) <= MAX_MESSAGE else joined[:MAX_MESSAGE] + " ..."
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in shown)


def _show_warning(command: str) -> Any:
    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(_one_line(f"{command}: warning: {message}"), file=sys.stderr)

    return show
