"""What is done: items, and the stage that turns each into a part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ucpe.work.parts import Parts


@dataclass(frozen=True)
class Item:
    """One piece of work."""

    id: str
    """Deterministic and unique within a run; it names the part."""
    task: Any = None
    """What `Stage.process` gets: paths and numbers, never pictures."""
    fingerprint: str = ""
    """Of the settings and inputs that the part is made from (`ucpe.files.fingerprint_of`)."""


@dataclass(frozen=True)
class Resources:
    """What one worker of a stage needs."""

    cpus: float | None = 1.0
    """Cores, and so threads. None: libraries take what they like, and results may depend on the machine."""
    gpus: float = 0.0
    """GPUs; a fraction shares one."""
    memory: float = 0.0
    """Bytes of main memory; 0 if it does not matter."""


class OutOfTime(Exception):
    """An item stopped because the time of the whole run is over: what it did is kept, and no other is begun."""


class Stage:
    """Work that many items need. It is sent to workers whole, so it holds settings, not models."""

    name: str = "items"
    """What the items are called in progress."""
    resources: Resources = Resources()
    parts: Parts | None = None
    """Where parts are kept. None: `process` keeps its own files, and `find` knows them."""
    waits: bool = False
    """Whether the work is mostly waiting (for a server): then it is done in threads, not processes."""

    def setup(self) -> None:
        """Load what all items need; called once in every worker."""

    def process(self, task: Any) -> Any:
        """Do one item and return its part, which is small; ValueError or OSError if it cannot be done."""
        raise NotImplementedError

    def find(self, item: Item) -> Any | None:
        """The part of an item if an earlier run made it from the same things, else None."""
        return None if self.parts is None else self.parts.load(item)

    def finish(self, item: Item) -> Any:
        """Process an item and keep its part."""
        part = self.process(item.task)
        if self.parts is not None:
            self.parts.save(item, part)
        return part


@dataclass
class Calls(Stage):
    """A stage that is one function, which workers can import by its name."""

    function: Callable[[Any], Any]
    name: str = "items"
    parts: Parts | None = None

    def process(self, task: Any) -> Any:
        """Call the function."""
        return self.function(task)
