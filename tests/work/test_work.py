"""One engine for long work: parts, retries, quarantine, locks, signals, and workers that never outlive their parent."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parent))

from work_stages import (
    BrokenSetup,
    DeadlySetup,
    Echo,
    Late,
    Squares,
    Threads,
    Unreadable,
    Unsendable,
    UnsendablePart,
    Waiting,
    items,
)

from ucpe import files
from ucpe.cli.train import main as train
from ucpe.files import atomic_file, file_fingerprint, fingerprint_of, remove_leftovers
from ucpe.video import VideoWriter, read_video
from ucpe.work import (
    Item,
    JsonParts,
    OutOfTime,
    Quarantine,
    Record,
    RecordParts,
    Stopped,
    complete,
    folder_lock,
    progress_bar,
    run,
)

SCRIPT = Path(__file__).with_name("work_stages.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[1])}


def start(folder, *arguments, **options) -> subprocess.Popen:
    command = [sys.executable, str(SCRIPT), str(folder), *map(str, arguments)]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, **pipes, **options)


def start_held(folder, count, workers, **options) -> subprocess.Popen:
    """A run whose items wait until `release` lets them go, once as many have begun as there are workers."""
    folder.mkdir()
    (folder / "hold").touch()
    return start(folder, count, 0, workers, **options)


def release(process, folder) -> str:
    """Let items go once the run has said that it heard a signal; the other things it says."""
    assert "stopping when the running items are done" in process.stderr.readline() + process.stderr.readline()
    (folder / "hold").unlink()
    return process.communicate(timeout=600)[1]


def until(condition):
    for _ in range(30_000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen")


def parts_of(folder) -> dict[str, bytes]:
    kept = [path for name in ("parts", "files") for path in (Path(folder) / name).iterdir()]
    return {path.name: path.read_bytes() for path in kept}


def children(process) -> list[int]:
    found = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(process)], capture_output=True, text=True
    ).stdout
    return [int(line.split()[0]) for line in found.splitlines() if "spawn_main" in line]


@pytest.mark.parametrize("workers", [1, 2])
def test_every_item_gets_its_part_and_is_done_once(tmp_path, workers):
    stage = Squares(tmp_path)
    assert {done.item.task: done.part for done in run(stage, items(1, 2, 3, 4), workers=workers)} == {
        number: number * number for number in (1, 2, 3, 4)
    }
    setups = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("setup")]
    assert len(setups) == len(set(setups)) <= workers
    again = list(run(stage, items(1, 2, 3, 4, 5), workers=workers))
    assert [done.before for done in again] == [True] * 4 + [False] and len(stage.calls()) == 5
    changed = [Item("item 1", 1, "other settings")]
    assert not next(run(stage, changed)).before and len(stage.calls()) == 6


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failed_item_is_set_aside_and_tried_again_on_request(tmp_path, workers):
    stage = Squares(tmp_path)

    def attempt(**options):
        quarantine = Quarantine(tmp_path)
        found = run(stage, items(1, "bad", "bug"), workers=workers, quarantine=quarantine, **options)
        return {done.item.task: done.reason for done in found}

    first = attempt()
    assert first[1] == "" and first["bad"] == "not a number: bad"
    assert first["bug"].startswith("KeyError: 'missing' (work_stages.py, line ")
    rows = [json.loads(line) for line in (tmp_path / "quarantine.jsonl").read_text().splitlines()]
    assert [(row["id"], row["reason"]) for row in rows] == [(f"item {name}", first[name]) for name in ("bad", "bug")]
    assert attempt() == first and len(stage.calls()) == 3
    assert attempt(retry_failed=True) == first and len(stage.calls()) == 5
    with (tmp_path / "quarantine.jsonl").open("a") as file:
        file.write('{"id": "item torn')
    stage.parts.save(items("bad")[0], 0)
    attempt()
    assert [row["id"] for row in Quarantine(tmp_path).rows.values()] == ["item bug"]


def test_without_a_quarantine_the_first_failure_is_raised(tmp_path):
    for workers in (1, 2):
        with pytest.raises(ValueError, match="not a number"):
            list(run(Squares(tmp_path), items("bad", 1), workers=workers))
    with pytest.raises(RuntimeError, match="Unpicklable: 1 2"):
        list(run(Waiting(), items(-1)))


def test_a_crashed_worker_is_a_retried_item_then_quarantine(tmp_path):
    stage = Squares(tmp_path)
    quarantine = Quarantine(tmp_path)
    found = {done.item.task: done for done in run(stage, items("deadly", "once", 3), workers=2, quarantine=quarantine)}
    assert found[3].part == 9 and found["once"].part == "once"
    assert found["deadly"].reason.startswith("the worker died (signal SIGKILL")
    assert stage.calls().count("process deadly") == 3 and stage.calls().count("process once") == 2


@pytest.mark.parametrize("options", [{"workers": 2}, {"engine": "ray"}])
def test_what_cannot_be_sent_is_refused_before_the_work(tmp_path, options):
    stage = Squares(tmp_path)
    with pytest.raises(ValueError, match=r"numbers: 'odd' cannot be sent to another process \(this stays here\)"):
        list(run(stage, [*items(1, 2), Item("odd", Unsendable())], **options))
    stage.secret = Unsendable()
    with pytest.raises(ValueError, match=r"numbers: their stage cannot be sent to another process"):
        list(run(stage, items(1, 2), **options))
    assert not (tmp_path / "log").exists()


def test_once_all_others_are_done_it_is_said_what_failed(tmp_path):
    stage = Squares(tmp_path)
    with pytest.raises(ValueError, match="1 of 3 failed, --retry-failed tries them again: item bad: not a number: bad"):
        complete(run(stage, items(1, "bad", 2), quarantine=Quarantine(tmp_path)))
    assert complete(run(stage, items(2, 1))) == {"item 1": 1, "item 2": 4} and len(stage.calls()) == 3


def test_time_that_is_over_ends_the_run_and_sets_nothing_aside(tmp_path):
    for workers in (1, 2):
        with pytest.raises(OutOfTime, match="after 3 steps"):
            list(run(Late(), items(1, 2, 3), workers=workers, quarantine=Quarantine(tmp_path)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [Unreadable, UnsendablePart])
def test_what_cannot_be_read_or_sent_back_is_a_crash_of_its_item_alone(tmp_path, kind):
    quarantine = Quarantine(tmp_path)
    items = [Item("odd", kind()), *(Item(str(number), number) for number in range(3))]
    done = {result.item.id: result for result in run(Echo(), items, workers=2, quarantine=quarantine)}
    assert [done[str(number)].part for number in range(3)] == [0, 1, 2]
    assert re.search(r"the worker died \((the item|its part) cannot be (sent|read)", done["odd"].reason)
    assert quarantine.reason(items[0]) == done["odd"].reason


def test_a_stage_that_cannot_set_up_ends_the_run():
    for workers in (1, 2):
        with pytest.raises(ValueError, match="weights are missing"):
            list(run(BrokenSetup(), items(1, 2), workers=workers))
    with pytest.raises(OSError, match="3 workers died while they started \\(signal SIGKILL"):
        list(run(DeadlySetup(), items(1, 2), workers=2))


def test_work_that_waits_is_done_in_threads_and_the_rest_on_one_thread_each():
    assert {done.part for done in run(Waiting(), items(0.01, 0.02, 0.03), workers=3)} == {os.getpid()}
    for workers in (1, 2):
        assert [done.part for done in run(Threads(), items(1, 2), workers=workers)] == [1, 1]


def test_bad_requests_are_refused():
    with pytest.raises(ValueError, match="workers must be at least 1"):
        list(run(Waiting(), items(0), workers=0))
    with pytest.raises(ValueError, match="several are called 'item 0'"):
        list(run(Waiting(), items(0, 0)))
    with pytest.raises(ValueError, match="no engine 'slurm'"):
        list(run(Waiting(), items(0), engine="slurm"))
    with pytest.raises(ValueError, match="encoding: no engine 'slurm'"):
        train(["ucpe", "--encoding.engine", "slurm", "--dry-run"])


def test_no_item_is_begun_when_the_budget_ends(tmp_path):
    stage, left = Squares(tmp_path), iter([True, True, False])
    assert len(list(run(stage, items(1, 2, 3, 4), goes_on=lambda: next(left, False)))) == 2


def writer(partial):
    return int(partial.name.split(".")[-3])


def test_killed_at_any_moment_and_run_again_it_gives_the_same_bytes(tmp_path):
    whole = start(tmp_path / "whole", 8, 0, 1)
    assert whole.wait() == 0
    for workers in (1, 2):
        folder = tmp_path / str(workers)
        process = start(folder, 8, 0.1, workers)
        until(lambda folder=folder: (folder / "parts").is_dir() and len(list((folder / "parts").glob("*.json"))) >= 2)
        process.kill()
        process.wait()
        until(lambda folder=folder: not any(files.is_running(writer(file)) for file in folder.glob("parts/.*.partial")))
        assert start(folder, 8, 0, workers).wait() == 0
        assert parts_of(folder) == parts_of(tmp_path / "whole")
        assert len(Squares(folder).calls()) <= 8 + workers


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_workers_end_with_their_parent_and_the_lock_with_them(tmp_path):
    process = start(tmp_path / "run", 10, 100, 2)
    until(lambda: (tmp_path / "run" / "log").exists() and len(Squares(tmp_path / "run").calls()) == 2)
    workers = children(process.pid)
    assert len(workers) == 2
    holder = rf"another run is writing here \(process {process.pid} on .*, since 20"
    with pytest.raises(ValueError, match=holder), folder_lock(tmp_path / "run"):
        pass
    process.kill()
    process.wait()
    until(lambda: not any(map(files.is_running, workers)))
    with folder_lock(tmp_path / "run"):
        pass
    assert (tmp_path / "run" / ".lock").read_text() == ""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_once_it_stops_after_the_running_items(tmp_path, workers, number):
    folder = tmp_path / "run"
    process = start_held(folder, 50, workers)
    until(lambda: (folder / "log").exists() and len(Squares(folder).calls()) == workers)
    process.send_signal(number)
    errors = release(process, folder)
    assert len(Squares(folder).calls()) == len(list((folder / "parts").iterdir())) == workers
    assert f"Stopped: stopped, {workers} of 50 numbers done; the same command continues" in errors
    assert process.returncode == 1 and "Traceback" not in errors


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_asked_during_the_last_item_it_does_not_go_on_to_what_comes_next(tmp_path):
    folder = tmp_path / "run"
    process = start_held(folder, 1, 1)
    until(lambda: (folder / "log").exists() and Squares(folder).calls())
    process.send_signal(signal.SIGTERM)
    errors = release(process, folder)
    assert "Stopped: stopped, 1 of 1 numbers done; the same command continues" in errors and process.returncode == 1


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_terminal_that_interrupts_starting_workers_too_sees_no_traceback(tmp_path):
    process = start_held(tmp_path / "run", 50, 2, start_new_session=True)
    until(lambda: children(process.pid))
    os.killpg(process.pid, signal.SIGINT)
    errors = release(process, tmp_path / "run")
    assert re.search(r"Stopped: stopped, [12] of 50 numbers done; the same command continues", errors)
    assert "Traceback" not in errors


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("workers", [1, 2])
def test_asked_twice_it_stops_at_once(tmp_path, workers):
    process = start(tmp_path / "run", 50, 100, workers)
    until(lambda: (tmp_path / "run" / "log").exists() and len(Squares(tmp_path / "run").calls()) == workers)
    process.send_signal(signal.SIGINT)
    assert "stopping when the running items are done" in process.stderr.readline() + process.stderr.readline()
    left = children(process.pid)
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=600)[1]
    assert "Stopped: stopped at once; the same command continues" in errors and "Traceback" not in errors
    assert not any(map(files.is_running, left))


def test_stopped_is_an_interrupt_that_no_item_swallows():
    assert issubclass(Stopped, KeyboardInterrupt)


def test_two_writers_of_one_file_leave_a_whole_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    with atomic_file(path) as one, atomic_file(path) as two:
        assert one != two
        one.write_text("one")
        two.write_text("two")
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(RuntimeError), atomic_file(path) as one:
        one.write_text("half")
        raise RuntimeError
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]


def test_two_writers_of_one_video_leave_a_whole_video(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), np.uint8)
    with VideoWriter(tmp_path / "video.mp4", 16, 16, 8) as one, VideoWriter(tmp_path / "video.mp4", 16, 16, 8) as two:
        for frame in frames:
            one.write(frame)
            two.write(255 - frame)
    assert len(list(read_video(tmp_path / "video.mp4"))) == 6
    assert [path.name for path in tmp_path.iterdir()] == ["video.mp4"]


def test_what_safetensors_writes_may_be_read_by_whoever_may_read_other_files(tmp_path):
    (tmp_path / "plain").write_text("")
    with atomic_file(tmp_path / "weights.safetensors") as temporary:
        save_file({"a": torch.zeros(2)}, temporary)
    assert (tmp_path / "weights.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_dead_processes_left_behind_is_removed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    own = files.temporary_name(tmp_path / "a")
    dead = own.with_name(own.name.replace(f".{os.getpid()}.", f".{gone.pid}."))
    elsewhere = own.with_name(".a.another-machine.1.0.partial")
    for file in (own, dead, elsewhere):
        file.touch()
    remove_leftovers(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([own, elsewhere])
    os.utime(elsewhere, (0, 0))
    remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == [own]


def test_a_temporary_folder_of_a_killed_process_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = f"import tempfile, os; tempfile.tempdir = {str(tmp_path)!r}; from ucpe.files import temporary_folder as t"
    script += "; manager = t(); folder = manager.__enter__(); (folder / 'frame.png').touch(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT)
    left = list(tmp_path.iterdir())
    assert len(left) == 1 and list(left[0].iterdir())
    monkeypatch.setattr(files, "_tidied", set())
    with files.temporary_folder() as one, files.temporary_folder() as two:
        assert sorted(tmp_path.iterdir()) == sorted([one, two])
    assert not list(tmp_path.iterdir())


def test_leftovers_that_may_not_be_removed_stop_nobody(tmp_path, monkeypatch):
    left = tmp_path / ".a.another-machine.1.0.partial"
    left.touch()
    os.utime(left, (0, 0))

    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert files.temporary_name(tmp_path / "b").parent == tmp_path and left.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not end them")
def test_a_program_ends_with_the_process_that_runs_it_and_hears_what_it_needs(tmp_path):
    number = tmp_path / "number"
    script = "import signal, sys; from ucpe.work import run_program; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    script += "; print(run_program(['sh', '-c', sys.argv[1]]).returncode)"

    def running(body):
        number.unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", script, f"echo $$ > {number}; {body}"],
            env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        until(lambda: number.exists() and number.read_text().strip())
        return process, int(number.read_text())

    process, program = running("exec sleep 100")
    process.kill()
    process.wait()
    until(lambda: not files.is_running(program))
    process, program = running("exec sleep 100")
    os.kill(program, signal.SIGTERM)
    assert process.communicate(timeout=600)[0] == f"-{int(signal.SIGTERM)}\n"


def test_the_same_file_is_the_same_bytes(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x" * 1000)
    large.write_bytes(bytes(1 << 21))
    for file in (small, large):
        copy = tmp_path / "elsewhere" / file.name
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(file.read_bytes())
        os.utime(copy, (1, 1))
        assert file_fingerprint(copy) == file_fingerprint(file)
        for place in (0, -1, 500 if file == small else -(1 << 13)):
            content = bytearray(file.read_bytes())
            content[place] ^= 1
            copy.write_bytes(content)
            os.utime(copy, (place % 97 + 2, 2))
            assert file_fingerprint(copy) != file_fingerprint(file)
    assert file_fingerprint(tmp_path / "none").startswith("missing-")
    assert fingerprint_of({"a": 1, "b": 2}) == fingerprint_of({"b": 2, "a": 1}) != fingerprint_of({"a": 1, "b": 3})


def test_parts_of_any_id_stay_in_their_folder(tmp_path):
    parts = JsonParts(tmp_path / "parts")
    for name in ("../out", "a/b", "a%2Fb", "ü.mp4", ".", "城市漫步" * 15, "城市漫步" * 15 + "2"):
        item = Item(name, fingerprint="1")
        parts.save(item, {"name": name})
        assert parts.file(item).parent == tmp_path / "parts" and parts.load(item) == {"name": name}
    assert len(list((tmp_path / "parts").iterdir())) == 7
    parts.file(item).write_text("{")
    assert parts.load(item) is None


def test_records_are_found_by_their_fingerprint_and_have_the_same_bytes_always(tmp_path):
    tensors = {name: torch.arange(3.0) for name in "cab"}
    parts, item = RecordParts(tmp_path), Item("some/run", fingerprint="1")
    assert parts.load(item) is None and not parts.holds(item)
    parts.save(item, Record(tensors))
    content = parts.file(item).read_bytes()
    parts.save(item, Record(dict(sorted(tensors.items()))))
    assert parts.file(item).read_bytes() == content and parts.load(item).tensors.keys() == tensors.keys()
    parts.save(item, Record(tensors, {"seconds": 1.5}))
    assert parts.load(item).facts == {"seconds": 1.5} and not parts.holds(Item("some/run", fingerprint="2"))
    parts.file(item).write_bytes(content[:50])
    assert not parts.holds(item)


def test_without_a_terminal_progress_is_plain_lines(tmp_path, capsys):
    with progress_bar() as show:
        list(run(Squares(tmp_path), items(1, 2, 3), progress=show))
    assert capsys.readouterr().err == "numbers: 3 of 3\n"
