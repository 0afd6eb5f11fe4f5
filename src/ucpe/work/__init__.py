"""Long work: many independent items, each of which leaves a part; killed anywhere and run again, it continues.

    class Filming(Stage):
        name = "clips"

        def setup(self):                  # once per worker: load the model
            ...

        def process(self, task):          # once per item: write files, return something small
            ...

    with folder_lock(folder), progress_bar() as show:
        for done in run(Filming(parts=JsonParts(folder / "parts")), items, workers=8, progress=show):
            ...

An item has a deterministic id and a fingerprint of the settings and inputs it is made from. What is there with the same
fingerprint is not made again. The same items give the same bytes on any engine, with any number of workers, in any
order, after any kill.
"""

from ucpe.work.locks import folder_lock
from ucpe.work.options import EngineOptions, WorkArguments, WorkOptions
from ucpe.work.parts import JsonParts, Parts, Record, RecordParts
from ucpe.work.programs import run_program
from ucpe.work.progress import Progress, progress_bar
from ucpe.work.quarantine import Quarantine
from ucpe.work.running import Done, Stopped, complete, run
from ucpe.work.stages import Calls, Item, OutOfTime, Resources, Stage

__all__ = [
    "Calls",
    "Done",
    "EngineOptions",
    "Item",
    "JsonParts",
    "OutOfTime",
    "Parts",
    "Progress",
    "Quarantine",
    "Record",
    "RecordParts",
    "Resources",
    "Stage",
    "Stopped",
    "WorkArguments",
    "WorkOptions",
    "complete",
    "folder_lock",
    "progress_bar",
    "run",
    "run_program",
]
