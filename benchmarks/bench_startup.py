"""How long `import ucpe` and `ucpe --help` take: at most 0.3 s and 0.6 s of a fresh interpreter."""

import statistics
import subprocess
import sys
import time


def seconds(*command: str, repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    bare = seconds(sys.executable, "-c", "pass")
    for name, limit, command in (
        ("import ucpe", 0.3, ["-c", "import ucpe"]),
        ("ucpe --help", 0.6, ["-m", "ucpe", "--help"]),
    ):
        taken = seconds(sys.executable, *command)
        print(f"{name:<12} {taken:.3f} s (limit {limit} s), {taken / bare:.2f}x a bare interpreter ({bare:.3f} s)")
        if taken > limit:
            sys.exit(f"{name} is slower than {limit} s")
