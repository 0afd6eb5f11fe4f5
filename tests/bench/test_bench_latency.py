from types import SimpleNamespace

import pytest
import torch

from ucpe.bench.latency import Latency, markdown, measure_latency, time_in_turn


class Clock:
    """A clock that moves only when told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_calls_take_turns_and_the_median_counts_after_warming_up():
    clock, order = Clock(), []
    slow = iter([100.0, 3.0, 1.0, 2.0])
    fast = iter([50.0, 0.5, 0.5, 9.0])

    def call(name, times):
        order.append(name)
        clock.now += next(times)

    seconds = time_in_turn([lambda: call("a", slow), lambda: call("b", fast)], repeats=3, warmup=1, clock=clock)
    assert seconds == [2.0, 0.5]
    assert order == ["a", "b"] * 4
    with pytest.raises(ValueError, match="repeats"):
        time_in_turn([], repeats=0)


class Adapter(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        self.attached = True

    def attach(self, transformer, required):
        self.attached = True

    def detach(self):
        self.attached = False


class Pipeline:
    """What `measure_latency` uses of a pipeline, remembering how it was called."""

    def __init__(self):
        self.adapter, self.transformer = Adapter(), torch.nn.Linear(2, 2)
        self.defaults = SimpleNamespace(frames=5, fps=8.0, steps=2, height=16, width=28, guidance=1.0, text_tokens=8)
        self.calls = []

    def __call__(self, prompt, camera, height, width, num_inference_steps, follow_camera=True):
        called = "adapter" if follow_camera else "base"
        self.calls.append((called, self.adapter.attached, len(camera), height, width, num_inference_steps))


def test_the_same_video_is_timed_with_and_without_the_adapter():
    pipeline = Pipeline()
    latency = measure_latency(pipeline, "model", repeats=2, warmup=1, steps=3)
    assert pipeline.calls == [("adapter", True, 5, 16, 28, 3), ("base", False, 5, 16, 28, 3)] * 3
    assert pipeline.adapter.attached
    assert latency.adapter_parameters == 20
    assert latency.seconds > 0
    assert latency.overhead == pytest.approx(latency.seconds / latency.base_seconds - 1)


def test_the_table_marks_the_papers_rows_as_quoted():
    latency = Latency("desk", "a cpu", 17, 64, 112, 20, 3, 2.2, 2.0, 1000)
    text = markdown([latency])
    assert "| desk | 2.20 | 2.00 | +10.0 % | 17 | 64 x 112 | 20 | a cpu |" in text
    assert text.count("(quoted)") == 5
