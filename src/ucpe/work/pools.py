"""Workers of this machine: this process, threads of it, or processes that end when it ends."""

from __future__ import annotations

import errno
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.util import Finalize
from typing import Any, Protocol

from ucpe.work.programs import end_with_parent
from ucpe.work.stages import Item, OutOfTime, Stage

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
"""What tells a library that is loaded later how many threads to use."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors of a disk that takes nothing more."""

SETUPS = 3
"""How many workers may die while they set up before the run gives up."""


@dataclass(frozen=True)
class Outcome:
    """How an item ended: with a part, with an error, or with the death of its worker."""

    part: Any = None
    error: Exception | None = None
    reason: str = ""
    """The error in words."""
    crashed: bool = False
    fatal: bool = False
    """Whether no other item can do better, because the disk is full or time is over."""


class Pool(Protocol):
    """Workers that take one item at a time."""

    @property
    def free(self) -> bool:
        """Whether an item can be submitted."""

    def submit(self, item: Item) -> None:
        """Give an item to a free worker."""

    def wait(self) -> list[tuple[Item, Outcome]]:
        """Items that have ended; waits until one has, or a worker gets free."""

    def close(self) -> None:
        """End all workers at once."""


def attempt(stage: Stage, item: Item) -> Outcome:
    """Process an item; an exception becomes its outcome."""
    try:
        return Outcome(stage.finish(item))
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in FULL
        if full:
            error = OSError(f"{error}: make room and run the same command again; what is done is kept")
        return Outcome(error=portable(error), reason=reason_of(error), fatal=full or isinstance(error, OutOfTime))


def crash(end: str) -> Outcome:
    """The outcome of an item whose worker ended like this."""
    reason = f"the worker died ({end})"
    return Outcome(error=OSError(reason), reason=reason, crashed=True)


def reason_of(error: Exception) -> str:
    """An error in words; one that nobody expected with its type and where it happened."""
    if isinstance(error, ValueError | OSError) and str(error):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}, line {place.lineno})"


def portable(error: Exception) -> Exception:
    """An exception that can be sent to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def pack(stage: Stage, items: Sequence[Item]) -> bytes:
    """The stage as bytes for other processes; ValueError if it cannot be sent there, or one of the items."""
    thing: Stage | Item = stage
    try:
        content = pickle.dumps(stage)
        for thing in items:
            pickle.dumps(thing)
    except Exception as error:
        what = "their stage" if isinstance(thing, Stage) else repr(thing.id)
        raise ValueError(f"{stage.name}: {what} cannot be sent to another process ({error})") from None
    return content


def attempt_packed(stage: Stage, packed: bytes) -> bytes:
    """Process an item that arrives as bytes; an item or a part that cannot be read or sent is a crash."""
    try:
        outcome = attempt(stage, pickle.loads(packed))
    except Exception as error:
        outcome = crash(f"the item cannot be read: {error}")
    try:
        return pickle.dumps(outcome)
    except Exception as error:
        return pickle.dumps(crash(f"its part cannot be sent: {error}"))


def unpack(answer: bytes) -> Outcome:
    """The outcome that `attempt_packed` answers with."""
    try:
        return pickle.loads(answer)
    except Exception as error:
        return crash(f"its part cannot be read: {error}")


class Inline:
    """Works in this process, on as many threads as a worker would have."""

    def __init__(self, stage: Stage):
        self.stage = stage
        self.item: Item | None = None
        stage.setup()
        self.threads = threads(stage.resources.cpus)
        self.threads.__enter__()

    @property
    def free(self) -> bool:
        """Whether no item is waiting."""
        return self.item is None

    def submit(self, item: Item) -> None:
        """Remember the item; `wait` does it."""
        self.item = item

    def wait(self) -> list[tuple[Item, Outcome]]:
        """Do the item."""
        assert self.item is not None
        item, self.item = self.item, None
        return [(item, attempt(self.stage, item))]

    def close(self) -> None:
        """Give this process its threads back."""
        self.threads.__exit__(None, None, None)


class Threads:
    """Works in threads of this process, for work that waits."""

    def __init__(self, stage: Stage, workers: int):
        stage.setup()
        self.stage, self.idle = stage, workers
        self.tasks: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self.ended: queue.SimpleQueue[tuple[Item, Outcome]] = queue.SimpleQueue()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self.threads:
            thread.start()

    @property
    def free(self) -> bool:
        """Whether a thread has nothing to do."""
        return self.idle > 0

    def submit(self, item: Item) -> None:
        """Give an item to a thread."""
        self.idle -= 1
        self.tasks.put(item)

    def wait(self) -> list[tuple[Item, Outcome]]:
        """The next item that ends."""
        while True:
            try:
                ended = self.ended.get(timeout=1)
            except queue.Empty:
                continue
            self.idle += 1
            return [ended]

    def close(self) -> None:
        """Let idle threads end; a busy one ends with the process."""
        for _ in self.threads:
            self.tasks.put(None)

    def _work(self) -> None:
        while (item := self.tasks.get()) is not None:
            self.ended.put((item, attempt(self.stage, item)))


class Processes:
    """Works in processes, each with its own threads and its own set-up stage, which end when this process ends."""

    def __init__(self, stage: Stage, items: Sequence[Item], workers: int):
        self.context = get_context("spawn")
        self.stage, self.cpus, self.limit = pack(stage, items), stage.resources.cpus, workers
        self.workers: list[_Worker] = []
        self.deaths = 0
        self.close = Finalize(self, _kill, (self.workers,), exitpriority=1)
        """Ends all workers at once; called when this process exits, if not before."""

    @property
    def free(self) -> bool:
        """Whether a worker has nothing to do, or another one may be started."""
        return len(self.workers) < self.limit or any(worker.item is None for worker in self.workers)

    def submit(self, item: Item) -> None:
        """Give an item to an idle worker, or to a new one."""
        worker = next((worker for worker in self.workers if worker.item is None), None)
        if worker is None:
            worker = _Worker(self.context, self.stage, self.cpus)
            self.workers.append(worker)
        worker.item = item
        with suppress(OSError):  # a worker that died while it was idle, which `wait` will see
            worker.connection.send(pickle.dumps(item))

    def wait(self) -> list[tuple[Item, Outcome]]:
        """The items that have ended, at least one."""
        ended: list[tuple[Item, Outcome]] = []
        while not ended:
            busy = {worker.connection: worker for worker in self.workers if worker.item is not None}
            for ready in connection.wait(list(busy)):
                worker = busy[ready]  # type: ignore[index]
                item, outcome = worker.item, self._answer(worker)
                if outcome is not None:
                    assert item is not None
                    worker.item = None
                    ended.append((item, outcome))
        return ended

    def _answer(self, worker: _Worker) -> Outcome | None:
        """What a worker says of its item; None if it only says that it is ready."""
        try:
            answer = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            self.workers.remove(worker)
            end = _exit(worker.process.exitcode)
            self.deaths += not worker.ready
            if self.deaths == SETUPS:
                raise OSError(f"{SETUPS} workers died while they started ({end})") from None
            return crash(end)
        if isinstance(answer, Exception):
            raise answer
        worker.ready = True
        return None if answer is None else unpack(answer)


class _Worker:
    """A process, the connection to it, and the item it works on."""

    def __init__(self, context: Any, stage: bytes, cpus: float | None):
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, stage, cpus, os.getpid()), daemon=True)
        with _deaf_children():
            self.process.start()
        theirs.close()
        self.item: Item | None = None
        self.ready = False


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started here never hear Ctrl-C or SIGTERM, not even before they can say so themselves."""
    if sys.platform == "win32":
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # or the first process would start it, which opens the signals again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.process.join()
        worker.connection.close()


def _work(pipe: connection.Connection, content: bytes, cpus: float | None, parent: int) -> None:
    """Life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_with_parent(parent)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            try:
                tasks.put(pipe.recv())
            except (EOFError, OSError):
                os._exit(1)  # the parent is gone

    threading.Thread(target=listen, daemon=True).start()
    if cpus is not None:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(max(1, int(cpus)))))
    try:
        stage: Stage = pickle.loads(content)
        stage.setup()
    except Exception as error:
        pipe.send(portable(error))
        return
    with threads(cpus):
        pipe.send(None)
        while True:
            pipe.send(attempt_packed(stage, tasks.get()))


@contextmanager
def threads(cpus: float | None) -> Iterator[None]:
    """Let torch and OpenCV, if they are loaded, use `cpus` threads, so that results do not depend on the machine."""
    if cpus is None:
        yield
        return
    count = max(1, int(cpus))
    torch, cv2 = sys.modules.get("torch"), sys.modules.get("cv2")
    before = (torch and torch.get_num_threads(), cv2 and cv2.getNumThreads())
    try:
        if torch:
            torch.set_num_threads(count)
        if cv2:
            cv2.setNumThreads(count)
        yield
    finally:
        if torch:
            torch.set_num_threads(before[0])
        if cv2:
            cv2.setNumThreads(before[1])


def _exit(code: int | None) -> str:
    if code is not None and code < 0:
        hint = ", out of memory?" if -code == signal.SIGKILL else ""
        return f"signal {signal.Signals(-code).name}{hint}"
    return f"exit code {code}"
