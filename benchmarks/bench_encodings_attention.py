"""What camera-aware attention costs: each goal as a ratio measured in this run, rounds interleaved, medians.

    python benchmarks/bench_encodings_attention.py [--threads 2] [--rounds 7] [--compile]

On one thread CPU time is measured, which other programs disturb least; on several, wall time.

1. `camera_attention` against plain scaled_dot_product_attention, 1 head of 192 channels as in the adapter of
   Wan2.1-1.3B at compression 8: 8,190 tokens (goal 1.04) and 32,760 tokens (goal 1.01), also forward + backward.
2. Applying an operator against the straightforward split / einsum / concatenate (goal: at most half the time).
3. Rays, ray frames, operator and Lat-Up of 21 latent frames of 30 x 52 tokens against one adapter block's attention
   at that size (goal: at most a twentieth).
4. With --compile: torch.compile of the straightforward formulation and of the operator.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ucpe.encodings import Operator, camera_attention, camera_operator, lat_up_map
from ucpe.lenses import UCM

HEAD_DIM = 192
LENS = UCM(xfov=120, xi=0.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--forward-only", action="store_true")
    parser.add_argument("--size", choices=("small", "large", "both"), default="both", help="8,190 or 32,760 tokens")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    sizes = {"small": [(21, 15, 26)], "large": [(21, 30, 52)], "both": [(21, 15, 26), (21, 30, 52)]}[arguments.size]
    for frames, height, width in sizes:
        operator = camera_operator("ucpe", LENS, moving_camera(frames), height, width, HEAD_DIM)
        compare_application(operator, arguments.rounds * 5, arguments.compile)
        plain = compare_attention(operator, arguments.rounds, arguments.forward_only)
        compare_construction(frames, height, width, plain, arguments.rounds)


def compare_attention(operator: Operator, rounds: int, forward_only: bool) -> float:
    tokens = operator.token_count
    query, key, value = torch.randn(3, 1, 1, tokens, HEAD_DIM)
    trained = [t.clone().requires_grad_() for t in (query, key, value)]

    def forward(attend: Callable[..., Tensor], *rest: Operator) -> Callable[[], object]:
        return lambda: attend(query, key, value, *rest)

    def backward(attend: Callable[..., Tensor], *rest: Operator) -> Callable[[], object]:
        return lambda: torch.autograd.grad(attend(*trained, *rest).sum(), trained)

    goal = {8190: 1.04, 32760: 1.01}.get(tokens)
    with torch.no_grad():
        plain, ours, ratio = interleaved(
            forward(scaled_dot_product_attention), forward(camera_attention, operator), rounds
        )
    print(f"{tokens:>6} tokens, forward:            {ours:.3f} s / {plain:.3f} s = {ratio:.3f} (goal {goal})")
    if forward_only:
        return plain
    plain_both, ours_both, ratio = interleaved(
        backward(scaled_dot_product_attention), backward(camera_attention, operator), max(3, rounds // 2)
    )
    print(f"{tokens:>6} tokens, forward + backward: {ours_both:.3f} s / {plain_both:.3f} s = {ratio:.3f}")
    return plain


def compare_application(operator: Operator, rounds: int, compiled: bool) -> None:
    tokens = operator.token_count
    x = torch.randn(1, 1, tokens, HEAD_DIM)
    with torch.no_grad():
        slow, fast, ratio = interleaved(lambda: straightforward(x, operator), lambda: operator.query(x), rounds)
        print(
            f"{tokens:>6} tokens, applying one operator: {fast * 1e3:.1f} ms / {slow * 1e3:.1f} ms "
            f"straightforward = {ratio:.3f} (goal 0.5)"
        )
        extra = [allocated(f, x) for f in (lambda: operator.query(x), lambda: straightforward(x, operator))]
        print(f"{'':>14} memory allocated over the input's size: {extra[0]:.2f} against {extra[1]:.2f}")
        if compiled:
            one = torch.compile(lambda: operator.query(x), fullgraph=True)
            other = torch.compile(lambda: straightforward(x, operator), fullgraph=True)
            slow, fast, ratio = interleaved(other, one, rounds)
            print(f"{'':>14} compiled: {fast * 1e3:.1f} ms / {slow * 1e3:.1f} ms straightforward = {ratio:.3f}")


def compare_construction(frames: int, height: int, width: int, attention: float, rounds: int) -> None:
    c2w = moving_camera(frames)

    def build() -> object:
        return camera_operator("ucpe", LENS, c2w, height, width, HEAD_DIM), lat_up_map(LENS, c2w, height, width)

    build()
    taken = statistics.median(seconds(build) for _ in range(rounds))
    print(
        f"{frames * height * width:>6} tokens, rays + frames + operator + Lat-Up: {taken * 1e3:.0f} ms = "
        f"1/{attention / taken:.0f} of plain attention (goal 1/20)"
    )


def straightforward(x: Tensor, operator: Operator) -> Tensor:
    """Query transform by split, einsum, rotation and concatenation."""
    assert operator.cosine is not None and operator.sine is not None
    camera, columns, rows = x.split([HEAD_DIM // 2, HEAD_DIM // 4, HEAD_DIM // 4], dim=-1)
    camera = torch.einsum("...tji,...htpj->...htpi", operator.blocks, camera.unflatten(-1, (-1, 4))).flatten(-2)
    parts = [camera]
    for part, cosine, sine in zip((columns, rows), operator.cosine.chunk(2, -1), operator.sine.chunk(2, -1)):
        first, second = part.chunk(2, dim=-1)
        parts += [cosine * first + sine * second, cosine * second - sine * first]
    return torch.cat(parts, dim=-1)


def moving_camera(frames: int) -> Tensor:
    c2w = torch.eye(4).repeat(frames, 1, 1)
    c2w[:, 2, 3] = torch.linspace(0, 2, frames)
    return c2w


def interleaved(first: Callable[[], object], second: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Median seconds of both, run in turn, and the median of the ratios second / first of each turn."""
    first(), second()
    pairs = [(seconds(first), seconds(second)) for _ in range(rounds)]
    ratio = statistics.median(b / a for a, b in pairs)
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs), ratio


def seconds(run: Callable[[], object]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    run()
    return clock() - start


def allocated(run: Callable[[], object], x: Tensor) -> float:
    """Peak bytes that torch holds during a run beyond those before it, over the bytes of x."""
    with torch.profiler.profile(profile_memory=True) as profiler:
        run()
    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak / (x.numel() * x.element_size())


if __name__ == "__main__":
    main()
