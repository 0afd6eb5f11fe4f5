"""What the engine for long work costs: `python benchmarks/bench_work.py [--ray] [--rows 100000]`.

Prints, each measured in one run: the share that the engine adds to items of one second, the rate of items that do
nothing, the speed-up of two workers on Ray, and the time and memory of `ucpe dataset stats` on a large table.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ucpe.work import Item, JsonParts, Stage, run


class Sleep(Stage):
    def process(self, seconds):
        time.sleep(seconds)
        return seconds


class Nothing(Stage):
    def process(self, task):
        return task


def timed(stage, tasks, **options) -> float:
    started = time.perf_counter()
    for _ in run(stage, [Item(f"{number:06d}", task) for number, task in enumerate(tasks)], **options):
        pass
    return time.perf_counter() - started


def overhead(count: int = 10) -> None:
    """Items of one second through one worker process, against the same calls without the engine; parts are kept."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Sleep()
        stage.parts = JsonParts(folder)
        bare = time.perf_counter()
        for _ in range(count):
            stage.process(1.0)
        bare = time.perf_counter() - bare
        engine = timed(stage, [1.0] * count)
    print(f"items of one second: {100 * (engine / bare - 1):.2f} % added by the engine ({count} items)")


def nothing(count: int = 10_000) -> None:
    for workers in (1, 2):
        seconds = timed(Nothing(), range(count), workers=workers)
        print(f"items that do nothing: {count} in {seconds:.1f} s, {workers} workers")
    with tempfile.TemporaryDirectory() as folder:
        stage = Nothing()
        stage.parts = JsonParts(folder)
        seconds = timed(stage, range(count), workers=2)
        again = timed(stage, range(count), workers=2)
    print(f"the same with a part on disk each: {seconds:.1f} s, and {again:.1f} s to find them all done")


def on_ray(count: int = 20) -> None:
    timed(Sleep(), [0.01] * 2, engine="ray", workers=2)  # starts Ray
    one = timed(Sleep(), [1.0] * count, engine="ray", workers=1)
    two = timed(Sleep(), [1.0] * count, engine="ray", workers=2)
    print(f"items of one second on Ray: {one:.1f} s with 1 worker, {two:.1f} s with 2: {one / two:.2f} times as fast")


def statistics(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for count in (rows // 4, rows):
            table(Path(folder) / str(count), count)
            started = time.perf_counter()
            command = [sys.executable, "-m", "ucpe", "dataset", "stats", str(Path(folder) / str(count))]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - started
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            print(f"ucpe dataset stats: {count} rows in {seconds:.1f} s, at most {peak:.2f} GiB")


def table(folder: Path, count: int) -> None:
    """A dataset with as many rows as asked for, of random cameras, and few videos."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from ucpe.lenses import FAMILIES
    from ucpe.synthesis.clips import ClipSettings, synthesize
    from ucpe.synthesis.dataset import METADATA, read_metadata

    synthesize(["worlds:outdoor"], folder, 4, ClipSettings(frames=81, height=32, width=56))
    known, random = read_metadata(folder), np.random.default_rng(0)
    families = [list(FAMILIES.values())[number % 4] for number in range(count)]
    lenses = [(float(random.uniform(*one.xfov)), float(random.uniform(*one.xi))) for one in families]
    columns = {
        "id": [f"{number:07d}" for number in range(count)],
        "family": [family.name for family in families],
        "lens": [f'{{"model": "ucm", "xfov": {xfov!r}, "xi": {xi!r}}}' for xfov, xi in lenses],
    }
    rows = known.take(pa.array(np.arange(count) % 4))
    for name, values in columns.items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(values))
    parquet.write_table(rows, folder / METADATA)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--rows", type=int, default=0)
    arguments = parser.parse_args()
    overhead()
    nothing()
    if arguments.ray:
        on_ray()
    if arguments.rows:
        statistics(arguments.rows)
