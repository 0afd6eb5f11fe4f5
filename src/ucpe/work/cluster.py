"""Workers of a Ray cluster: actors with the resources that a stage declares, each with one item at a time."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ucpe.work.pools import (
    SETUPS,
    THREAD_VARIABLES,
    Outcome,
    attempt_packed,
    crash,
    pack,
    portable,
    threads,
    unpack,
)
from ucpe.work.stages import Item, Resources, Stage

CONNECTIONS, PAUSE = 5, 5.0
"""How often a cluster is asked that aborts connections, as it does while it starts, and seconds in between."""


class Actors:
    """Works in actors of a Ray cluster. Tasks and answers are small, so the object store stays empty.

    An item goes only to an actor that is set up, so one that finds no place on the cluster holds up nothing.
    """

    def __init__(self, stage: Stage, items: Sequence[Item], workers: int | None, engine: str):
        if type(stage).__module__ == "__main__":
            raise ValueError(f"{stage.name}: their stage is defined in the script; import it from a module instead")
        self.stage, self.resources = pack(stage, items), stage.resources
        self.ray = connect(engine)
        places = workers or self._places()
        if not places:
            raise ValueError(f"no node of the cluster has {_words(self.resources)}, which {stage.name} need")
        self.idle: list[Any] = []
        self.running: dict[Any, tuple[Any, Item | None]] = {}
        """Actor and item by what the actor will answer; no item while it sets up."""
        self.deaths = 0
        for _ in range(min(places, len(items))):
            self._start()

    @property
    def free(self) -> bool:
        """Whether an actor is set up and has nothing to do."""
        return bool(self.idle)

    def submit(self, item: Item) -> None:
        """Give an item to an idle actor."""
        actor = self.idle.pop()
        self.running[actor.attempt.remote(pickle.dumps(item))] = (actor, item)

    def wait(self) -> list[tuple[Item, Outcome]]:
        """The items that have ended; none if within a second nothing has happened."""
        ready, _ = self.ray.wait(list(self.running), timeout=1)
        ended: list[tuple[Item, Outcome]] = []
        for answer in ready:
            actor, item = self.running.pop(answer)
            try:
                answered = self.ray.get(answer)
            except self.ray.exceptions.RayError as error:
                self._start()
                self.deaths += item is None
                if self.deaths == SETUPS:
                    raise OSError(f"{SETUPS} workers died while they started ({_first_line(error)})") from None
                if item is not None:
                    ended.append((item, crash(_first_line(error))))
                continue
            if isinstance(answered, Exception):
                raise answered
            self.idle.append(actor)
            if item is not None:
                ended.append((item, unpack(answered)))
        return ended

    def close(self) -> None:
        """End all actors at once."""
        for actor in [*self.idle, *(actor for actor, _ in self.running.values())]:
            self.ray.kill(actor)

    def _start(self) -> None:
        needs = self.resources
        actor = (
            self.ray.remote(Worker)
            .options(num_cpus=needs.cpus or 1, num_gpus=needs.gpus, memory=needs.memory or None, max_restarts=0)
            .remote(self.stage, needs.cpus, os.getcwd(), sys.path)
        )
        self.running[actor.setup.remote()] = (actor, None)

    def _places(self) -> int:
        """How many actors the nodes have room for."""
        needs = {"CPU": self.resources.cpus or 1, "GPU": self.resources.gpus, "memory": self.resources.memory}
        return sum(
            min(int(node["Resources"].get(name, 0) / need + 1e-9) for name, need in needs.items() if need)
            for node in self.ray.nodes()
            if node["Alive"]
        )


class Worker:
    """Life of an actor."""

    def __init__(self, stage: bytes, cpus: float | None, folder: str, path: list[str]):
        self.content, self.cpus = stage, cpus
        sys.path += [place for place in path if place not in sys.path]
        with suppress(OSError):
            os.chdir(folder)  # so that relative paths are those of the driver, where the nodes share a file system

    def setup(self) -> Exception | None:
        """Load what all items need, or say why not."""
        if self.cpus is not None:
            os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(max(1, int(self.cpus)))))
        try:
            self.stage: Stage = pickle.loads(self.content)
            self.stage.setup()
        except Exception as error:
            return portable(error)
        self.threads = threads(self.cpus)
        self.threads.__enter__()
        return None

    def attempt(self, packed: bytes) -> bytes:
        """Process an item."""
        return attempt_packed(self.stage, packed)


def connect(engine: str) -> Any:
    """Ray, connected: to ray://HOST:PORT, or to the cluster of RAY_ADDRESS, or to one on this machine."""
    try:
        import ray
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'ucpe[ray]'") from None
    left = CONNECTIONS
    while not ray.is_initialized():
        try:
            ray.init(address=engine if "://" in engine else _address(), logging_level=logging.ERROR)
        except (ConnectionError, TimeoutError) as error:
            left -= 1
            if not left or not isinstance(error, ConnectionAbortedError):
                reason = " ".join(str(error).split()[-30:])
                raise OSError(
                    f"no Ray cluster takes clients at {engine} ({reason})"
                    "; one that asks for a token, as Ray's do by default since 2.60, needs RAY_AUTH_MODE=token here"
                ) from None
            time.sleep(PAUSE)
        except Exception as error:
            if type(error) is not Exception:  # which Ray raises if a node takes more than 30 seconds to start
                raise
            raise OSError(f"Ray did not start on this machine: {' '.join(str(error).split())}") from None
    return ray


def _address() -> str | None:
    """None for the cluster that Ray knows (RAY_ADDRESS, or the last one started here), "local" if it knows none."""
    named = os.environ.get("RAY_ADDRESS", "")
    if named:
        if ":" in named and "://" not in named and not _listens(named):
            raise OSError(f"no Ray cluster answers at {named} (RAY_ADDRESS)")
        return None
    known = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir()), "ray", "ray_current_cluster")
    return None if known.is_file() and _listens(known.read_text().strip()) else "local"


def _listens(address: str) -> bool:
    """Whether something takes connections at HOST:PORT; Ray itself waits for minutes for a cluster that was killed."""
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError), socket.create_connection((host, int(port)), timeout=5):
        return True
    return False


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _words(needs: Resources) -> str:
    found = [f"{needs.cpus or 1:g} CPUs"]
    found += [f"{needs.gpus:g} GPUs"] if needs.gpus else []
    found += [f"{needs.memory / 2**30:.1f} GiB of memory"] if needs.memory else []
    return ", ".join(found)
