"""Rectifying a frame against plain cv2.remap with float maps of the same size: best of many, in one run.

python benchmarks/bench_evaluation_rectification.py
"""

from functools import partial
from time import perf_counter

import cv2
import numpy as np

from ucpe.evaluation.rectification import Rectifier
from ucpe.lenses import UCM

HEIGHT, WIDTH, ROUNDS = 480, 832, 60


def main() -> None:
    cv2.setNumThreads(1)
    frame = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    for lens in (UCM(xfov=120, xi=0.7), UCM(xfov=180, xi=2.0)):
        rectifier = Rectifier(lens, HEIGHT, WIDTH)
        started = perf_counter()
        rectifier(frame)
        first = perf_counter() - started
        source = (rectifier._source[0] - 0.5).float().numpy()
        columns, rows = np.ascontiguousarray(source[..., 0]), np.ascontiguousarray(source[..., 1])
        times: dict[str, list[float]] = {"rectifier": [], "cv2.remap": []}
        for _ in range(ROUNDS):
            for name, call in (
                ("rectifier", partial(rectifier, frame)),
                ("cv2.remap", partial(cv2.remap, frame, columns, rows, cv2.INTER_LINEAR)),
            ):
                started = perf_counter()
                call()
                times[name].append(perf_counter() - started)
        ours, plain = (1e3 * min(times[name]) for name in ("rectifier", "cv2.remap"))
        print(
            f"{lens}: rectifier {ours:.2f} ms, cv2.remap {plain:.2f} ms, ratio {ours / plain:.2f} "
            f"(first frame, with its map: {1e3 * first:.0f} ms)"
        )


if __name__ == "__main__":
    main()
