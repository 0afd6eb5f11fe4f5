"""Stages for the tests, in a module that worker processes can import, and a run that tests kill."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ucpe.files import write_file
from ucpe.work import Item, JsonParts, OutOfTime, Quarantine, Resources, Stage, folder_lock, run


@dataclass
class Squares(Stage):
    """Squares numbers; writes what it did to `folder`/log, one line per call; waits while `folder`/hold is there."""

    folder: Path
    seconds: float = 0.0
    name = "numbers"

    def __post_init__(self):
        self.parts = JsonParts(self.folder / "parts")

    def log(self, line):
        with open(self.folder / "log", "a") as file:
            file.write(f"{line}\n")

    def setup(self):
        self.factor = 1
        self.log(f"setup {os.getpid()}")

    def process(self, number):
        self.log(f"process {number}")
        time.sleep(self.seconds)
        while (self.folder / "hold").exists():
            time.sleep(0.01)
        if number == "bad":
            raise ValueError("not a number: bad")
        if number == "bug":
            return {}["missing"]
        if number == "deadly" or (number == "once" and not (self.folder / "markonce").exists()):
            (self.folder / f"mark{number}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if number in ("once", "deadly"):
            return number
        write_file(self.folder / "files" / str(number), b"x" * number)
        return self.factor * number * number

    def calls(self):
        return [line for line in (self.folder / "log").read_text().splitlines() if line.startswith("process")]


class Echo(Stage):
    def process(self, task):
        return task.part() if hasattr(task, "part") else task


class Unsendable:
    def __reduce__(self):
        raise TypeError("this stays here")


def refuse():
    raise ModuleNotFoundError("no such module there")


class Unreadable:
    def __reduce__(self):
        return refuse, ()


class UnsendablePart:
    def part(self):
        return Unsendable()


class Late(Stage):
    def process(self, task):
        raise OutOfTime("after 3 steps")


class BrokenSetup(Stage):
    def setup(self):
        raise ValueError("weights are missing")


class DeadlySetup(Stage):
    def setup(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Threads(Stage):
    resources = Resources(cpus=1)

    def setup(self):
        import cv2

        self.count = cv2.getNumThreads

    def process(self, task):
        return self.count()


class Fractions(Stage):
    """Says which share of a GPU and of a CPU Ray gave to its worker."""

    resources = Resources(cpus=0.5, gpus=0.5)

    def process(self, task):
        import ray

        given = ray.get_runtime_context().get_assigned_resources()
        return [given["GPU"], given["CPU"]]


class Unpicklable(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


class Waiting(Stage):
    waits = True

    def process(self, seconds):
        if seconds < 0:
            raise Unpicklable(1, 2)
        time.sleep(seconds)
        return os.getpid()


def items(*tasks):
    return [Item(f"item {task}", task, "v1") for task in tasks]


def main():
    folder, count, seconds, workers = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    engine = sys.argv[5] if len(sys.argv) > 5 else "local"
    folder.mkdir(exist_ok=True)
    with folder_lock(folder):
        stage = Squares(folder, seconds)
        for done in run(stage, items(*range(count)), workers=workers, engine=engine, quarantine=Quarantine(folder)):
            print(done.item.id, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt as stop:
        sys.exit(f"{type(stop).__name__}: {stop}")
