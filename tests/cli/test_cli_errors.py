"""What a user sees when a command fails: one line, whatever went wrong."""

import errno
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest

from ucpe.cli.errors import CLOSED_PIPE, INTERRUPTED, MAX_MESSAGE, UNEXPECTED, one_line_errors


def fail(error, capsys, debug=False):
    """Exit code and stderr of a command that raises."""
    with pytest.raises(SystemExit) as left, one_line_errors("ucpe test", debug):
        raise error
    return left.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    "error, line",
    [
        (ValueError("a.yaml: fx: expected a number"), "a.yaml: fx: expected a number"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.txt"), "a.txt: No such file or directory"),
        (FileNotFoundError("no file or folder a.txt"), "no file or folder a.txt"),
        (
            ModuleNotFoundError("No module named 'ray'", name="ray"),
            "this needs the package ray, which is not installed",
        ),
        (MemoryError(), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), "not enough memory: DefaultCPUAllocator"),
        (RecursionError("maximum recursion depth exceeded"), "the input is nested too deeply"),
        (OverflowError("cannot convert float infinity to integer"), "cannot convert float infinity to integer"),
        (zipfile.BadZipFile("File is not a zip file"), "File is not a zip file"),
    ],
)
def test_expected_errors_are_one_line(error, line, capsys):
    code, shown = fail(error, capsys)
    assert code == 1 and shown.startswith(f"ucpe test: {line}") and shown.count("\n") == 1


def test_lines_are_joined_cut_and_cannot_steer_the_terminal(capsys):
    _, shown = fail(ValueError("two\nlines \x1b[31mred"), capsys)
    assert shown == "ucpe test: two lines \\x1b[31mred\n"
    _, shown = fail(ValueError("x" * 10**6), capsys)
    assert len(shown) < MAX_MESSAGE + 20


def test_the_unexpected_writes_a_report(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, shown = fail(KeyError("fx"), capsys)
    (report,) = tmp_path.iterdir()
    assert code == UNEXPECTED and shown.count("\n") == 1 and "unexpected KeyError" in shown and str(report) in shown
    assert "Traceback" in report.read_text() and "KeyError: 'fx'" in report.read_text()


def test_debug_shows_the_traceback(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert "Traceback" in fail(KeyError("fx"), capsys, debug=True)[1]
    assert "Traceback" in fail(ValueError("expected"), capsys, debug=True)[1]
    assert not list(tmp_path.iterdir())


def test_interrupting(capsys):
    assert fail(KeyboardInterrupt(), capsys) == (INTERRUPTED, "ucpe test: stopped\n")


def test_warnings_are_one_line(capsys):
    with one_line_errors("ucpe test"):
        warnings.warn("uneven\ntimes", UserWarning)
    assert capsys.readouterr().err == "ucpe test: warning: uneven times\n"


def run(arguments, **options):
    return subprocess.run([sys.executable, "-m", "ucpe", *arguments], capture_output=True, text=True, **options)


def test_a_command_that_is_not_there():
    done = run(["fly"])
    assert done.returncode == 1 and done.stderr.startswith("ucpe: no command 'fly'; there are lens,")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_behind_stdout():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "ucpe"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr == "ucpe: No space left on device\n"


def test_a_closed_pipe_is_quiet():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "ucpe"], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode == CLOSED_PIPE and done.stderr == ""


ALL = "<&- >&- 2>&-"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "closed", "code"),
    [
        ("--help", ">&-", 0),
        ("lens show", "<&-", 1),
        ("lens show", ">&-", 1),
        ("lens show", "2>&-", 1),
        ("lens show", ALL, 1),
        ("lens show fisheye -o a.png", ALL, 0),
    ],
)
def test_closed_streams_are_no_error(arguments, closed, code, tmp_path):
    command = f"{sys.executable} -m ucpe {arguments} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == code and "Traceback" not in done.stderr and "unexpected" not in done.stderr
    assert (tmp_path / "a.png").exists() == ("-o" in arguments)


def test_help_names_a_default_once_and_only_where_there_is_one(capsys):
    from ucpe.cli.generate import main

    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Number of frames of the video; the paths of a list are resampled to it. [default: the model's] --" in shown
    assert "(default: out.mp4)" in shown and "(default: None)" not in shown
