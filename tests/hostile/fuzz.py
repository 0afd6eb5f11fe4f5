"""Damaged files through the real readers, in limited processes.

    make fuzz                                   20,000 cases with a new seed
    python tests/hostile/fuzz.py --seed 7 --case 123     one of them again, with its traceback

A case is fine (it was read, and what was read is sound), a clean error (an exception that the command line shows as
one line naming the file) or something else: an unexpected exception, a crash, more than MAX_SECONDS, more than
MAX_MEMORY, or a result that is wrong. Everything else is printed with the command that shows it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "src")]

MAX_SECONDS = 20
"""Most time of the processor for a case, in seconds, and a tenth of the longest time by the clock."""

MAX_MEMORY = 6 * 2**30
"""Most memory, in bytes of address space beyond what the libraries take, that a case may ask for."""

FINE, CLEAN = "fine", "clean error"


class Slow(BaseException):
    """A case that took too long."""


def run_case(kinds: list[Any], seed: int, case: int, folder: Path) -> tuple[str, str]:
    """What became of a case, and what it was."""
    from mutations import damage

    from ucpe.cli.errors import expected_message

    generator = random.Random(f"{seed}-{case}")
    kind = kinds[case % len(kinds)]
    if case // len(kinds) % kind.every:
        kind = generator.choice([kind for kind in kinds if kind.every == 1])
    good = generator.choice(kind.good)
    copy = folder / good.name
    shutil.copytree(good, copy, symlinks=True) if good.is_dir() else shutil.copy(good, copy)
    how = damage(generator.choice(kind.files(copy)), generator)
    what = f"{kind.name} {good.name}: {how}"
    signal.signal(signal.SIGALRM, _too_slow)
    signal.signal(signal.SIGPROF, _too_slow)
    signal.alarm(10 * MAX_SECONDS)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.read(copy)
        return FINE, what
    except Slow:
        return "too slow", what
    except AssertionError as error:
        return "wrong result", f"{what}: {error}"
    except Exception as error:
        message = expected_message(error)
        if message is None or isinstance(error, MemoryError):
            return f"unexpected {type(error).__name__}", f"{what}: {error}"
        if folder.name not in message:
            return "error that names no file", f"{what}: {message[:300]}"
        return CLEAN, what
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_slow(*_: Any) -> None:
    raise Slow


def work(seed: int, first: int, last: int, report: Path | None = None, show: bool = False) -> None:
    """Run cases and write a line about each; the line of a case that kills the process stays open."""
    import torch
    from kinds import all_kinds

    torch.set_num_threads(1)
    lines = report.open("a") if report else sys.stdout
    with tempfile.TemporaryDirectory(prefix="ucpe-good-") as place:
        kinds = all_kinds(Path(place) / "good")
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MAX_MEMORY,) * 2)
        assert used < MAX_MEMORY
        for case in range(first, last):
            print(json.dumps({"case": case}), file=lines, flush=True)
            with tempfile.TemporaryDirectory(prefix="ucpe-case-", dir=place) as folder:
                began = time.monotonic()
                if show:
                    _show(kinds, seed, case, Path(folder))
                outcome, what = run_case(kinds, seed, case, Path(folder)) if not show else (FINE, "")
            done = {"case": case, "outcome": outcome, "what": what, "seconds": round(time.monotonic() - began, 2)}
            print(json.dumps(done), file=lines, flush=True)


def _show(kinds: list[Any], seed: int, case: int, folder: Path) -> None:
    import ucpe.cli.errors

    told = ucpe.cli.errors.expected_message
    ucpe.cli.errors.expected_message = lambda error: (traceback.print_exception(error), told(error))[1]
    print(run_case(kinds, seed, case, folder))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def fuzz(seed: int, cases: int, processes: int = 1, first: int = 0) -> dict[int, dict[str, Any]]:
    """Outcomes by case; a process that dies is the outcome of its case, and the next one goes on after it."""
    results: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="ucpe-fuzz-") as place:
        bounds = [first + cases * index // processes for index in range(processes + 1)]
        running = [_start(seed, low, high, Path(place) / f"{low}.jsonl") for low, high in pairwise(bounds)]
        while running:
            process, last, report = running.pop(0)
            process.wait()
            lines = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
            results |= {line["case"]: line for line in lines if "outcome" in line}
            done = max((line["case"] for line in lines), default=None)
            if done is None:
                raise RuntimeError(f"the fuzzing process does not start: exit code {process.returncode}")
            if done not in results:
                results[done] = {"case": done, "outcome": f"killed the process ({process.returncode})", "what": ""}
            if done + 1 < last:
                running.append(_start(seed, done + 1, last, Path(place) / f"{done + 1}.jsonl"))
    return results


def _start(seed: int, first: int, last: int, report: Path) -> tuple[subprocess.Popen[bytes], int, Path]:
    command = [sys.executable, __file__, "--seed", str(seed), "--work", str(first), str(last), str(report)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return (
        subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
        last,
        report,
    )


def summary(results: dict[int, dict[str, Any]], seed: int) -> tuple[str, int]:
    """Counts, everything that is neither fine nor clean with the command that shows it, and how many those are."""
    counts = Counter(result["outcome"] for result in results.values())
    others = [result for result in results.values() if result["outcome"] not in (FINE, CLEAN)]
    lines = [
        f"{len(results)} cases, seed {seed}: {counts[CLEAN]} clean errors, {counts[FINE]} fine, {len(others)} other"
    ]
    for result in others:
        lines.append(f"  {result['outcome']}: {result['what']}")
        lines.append(f"    python tests/hostile/fuzz.py --seed {seed} --case {result['case']}")
    return "\n".join(lines), len(others)


def main() -> None:
    """Parse the command line and fuzz."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=None, help="a new one each time if none is given")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--case", type=int, default=None, help="run this one again and show its traceback")
    parser.add_argument("--work", nargs=3, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    if options.work is not None:
        work(seed, int(options.work[0]), int(options.work[1]), Path(options.work[2]))
    elif options.case is not None:
        work(seed, options.case, options.case + 1, show=True)
    else:
        text, others = summary(fuzz(seed, options.cases, options.processes), seed)
        print(text)
        sys.exit(bool(others))


if __name__ == "__main__":
    main()
