"""Runs a stage over items: skips what is there, retries what crashed, sets aside what failed, stops when asked."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from ucpe.work.options import EngineOptions
from ucpe.work.pools import Inline, Pool, Processes, Threads
from ucpe.work.progress import Progress
from ucpe.work.quarantine import Quarantine
from ucpe.work.stages import Item, Stage

RETRIES = 2
"""How often an item is tried again whose worker died."""


class Stopped(KeyboardInterrupt):
    """The run was asked to stop (Ctrl-C, SIGTERM) and did, in order; the message says how far it came."""


@dataclass(frozen=True)
class Done:
    """What became of an item."""

    item: Item
    part: Any = None
    reason: str = ""
    """Why it failed; "" if it did not."""
    before: bool = False
    """Whether this was known before this run."""


def run(
    stage: Stage,
    items: Sequence[Item],
    *,
    workers: int | None = None,
    engine: str = "local",
    quarantine: Quarantine | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
    goes_on: Callable[[], bool] = lambda: True,
) -> Iterator[Done]:
    """Every item with its part, or why it failed, as they finish; first those that are known from before.

    An item that failed is kept in `quarantine` and only tried again with `retry_failed`, or when its fingerprint
    changes; without a quarantine the first failure ends the run, and a full disk or `OutOfTime` always do. No item is
    begun once `goes_on()` is false. Ctrl-C or SIGTERM lets running items finish and raises `Stopped`; a second one
    stops at once.
    """
    EngineOptions(workers, engine)  # refuses what cannot be
    if repeated := [name for name, count in Counter(item.id for item in items).items() if count > 1]:
        raise ValueError(f"items need different ids; several are called {repeated[0]!r}")
    total, finished, failed = len(items), 0, 0

    def note(done: Done) -> Done:
        nonlocal finished, failed
        finished, failed = finished + 1, failed + bool(done.reason)
        if quarantine is not None and not done.before:
            quarantine.remove(done.item) if not done.reason else quarantine.add(done.item, done.reason)
        if progress is not None:
            progress(stage.name, finished, total)
        return done

    waiting: deque[Item] = deque()
    crashes: Counter[str] = Counter()
    running = 0
    fatal: Exception | None = None
    try:
        for item in items:
            part = stage.find(item)
            reason = quarantine.reason(item) if quarantine is not None else None
            if part is not None:
                if quarantine is not None:
                    quarantine.remove(item)
                yield note(Done(item, part, before=True))
            elif reason is not None and not retry_failed:
                yield note(Done(item, reason=reason, before=True))
            else:
                waiting.append(item)
        if not waiting:
            return
        with closing(open_pool(stage, waiting, workers, engine)) as pool, _stopping() as asked:
            while waiting or running:
                if waiting and pool.free and fatal is None and not asked.is_set() and goes_on():
                    pool.submit(waiting.popleft())
                    running += 1
                    continue
                if not running and (pool.free or fatal or asked.is_set()):
                    break
                for item, outcome in pool.wait():
                    running -= 1
                    crashes[item.id] += outcome.crashed
                    if outcome.crashed and crashes[item.id] <= RETRIES:
                        waiting.appendleft(item)
                        continue
                    if outcome.error is not None and (quarantine is None or outcome.fatal):
                        fatal = fatal or outcome.error
                        continue
                    yield note(Done(item, outcome.part, outcome.reason))
            if fatal is not None:
                raise fatal
            if asked.is_set():
                raise Stopped(
                    f"stopped, {finished} of {total} {stage.name} done"
                    + (f" ({failed} failed)" if failed else "")
                    + "; the same command continues"
                )
    finally:
        if quarantine is not None:
            quarantine.tidy()


def complete(results: Iterable[Done]) -> dict[str, Any]:
    """Parts by the ids of their items; ValueError, once all others are done, says what failed and why."""
    found = {done.item.id: done for done in results}
    if failed := [f"{name}: {done.reason}" for name, done in sorted(found.items()) if done.reason]:
        reasons = "; ".join(failed)
        raise ValueError(f"{len(failed)} of {len(found)} failed, --retry-failed tries them again: {reasons}")
    return {name: done.part for name, done in found.items()}


def open_pool(stage: Stage, items: Sequence[Item], workers: int | None, engine: str) -> Pool:
    """The workers that an engine offers for some items."""
    if engine != "local":
        from ucpe.work.cluster import Actors

        return Actors(stage, items, workers, engine)
    workers = min(workers or 1, len(items))
    if stage.waits:
        return Threads(stage, workers)
    return Inline(stage) if workers == 1 else Processes(stage, items, workers)


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second raises Stopped where it comes."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def stop(number: int, frame: Any) -> None:
        if asked.is_set():
            raise Stopped("stopped at once; the same command continues")
        asked.set()
        print("\nstopping when the running items are done; once more stops at once", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
