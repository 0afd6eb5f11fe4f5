"""What the engine for long work costs: `python benchmarks/bench_work.py [--ray | --rows 100000 | --stages]`.

Prints the share that the engine adds to items of one second and the rate of items that do nothing; or the speed-up of
two workers on Ray; or the time and memory of `ucpe dataset stats` on a large table; or the processor time of the stages
that no other benchmark times, on small inputs. Items of one second sleep, so that what is measured is the engine and
not what else the machine does.
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
from ucpe.work.cluster import connect


class Sleep(Stage):
    def process(self, seconds):
        time.sleep(seconds)
        return seconds


class Nothing(Stage):
    def process(self, task):
        return task


def timed(stage, tasks, **options) -> str:
    started, busy = time.perf_counter(), processor_seconds()
    for _ in run(stage, [Item(f"{number:06d}", task) for number, task in enumerate(tasks)], **options):
        pass
    return f"{time.perf_counter() - started:.1f} s ({processor_seconds() - busy:.1f} s of one core)"


def processor_seconds() -> float:
    """Of this process and of those that it has started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def seconds_long(count: int, workers: int, engine: str) -> tuple[float, float]:
    """Items of one second with a part each: how many end in a second once all workers work, and seconds for all."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Sleep()
        stage.parts = JsonParts(folder)
        items, started = [Item(str(number), 1.0) for number in range(count)], time.perf_counter()
        ends = [time.perf_counter() - started for _ in run(stage, items, workers=workers, engine=engine)]
    rate = (count - workers) / (ends[-1] - ends[workers - 1])
    print(
        f"{count} items of one second, {engine}, {workers} workers: {ends[-1]:.1f} s, the first after {ends[0]:.1f} s, "
        f"then {rate:.3f} a second",
        flush=True,
    )
    return rate, ends[-1]


def overhead(count: int = 20) -> None:
    """The engine against the same calls without it."""
    bare = time.perf_counter()
    for _ in range(count):
        Sleep().process(1.0)
    bare = (time.perf_counter() - bare) / count
    for workers in (1, 2):
        busy = processor_seconds()
        rate, _ = seconds_long(count, workers, "local")
        busy = 100 * (processor_seconds() - busy) / count
        print(f"  {100 * (workers / rate / bare - 1):.2f} % added by the engine; busy for {busy:.2f} %, start included")


def nothing(count: int = 10_000) -> None:
    for workers in (1, 2):
        print(f"{count} items that do nothing, {workers} workers: {timed(Nothing(), range(count), workers=workers)}")
    with tempfile.TemporaryDirectory() as folder:
        stage = Nothing()
        stage.parts = JsonParts(folder)
        print(f"the same with a part on disk each: {timed(stage, range(count), workers=2)}")
        print(f"finding them all done: {timed(stage, range(count), workers=2)}")


def on_ray(count: int = 40) -> None:
    """One worker against two, each on a Ray that has just started, as each command finds it."""
    found = []
    for workers in (1, 2):
        ray = connect("ray")
        found.append(seconds_long(count, workers, "ray"))
        ray.shutdown()
    (one, long), (two, short) = found
    print(f"  {two / one:.3f} times as many a second, {long / short:.3f} times as fast with the workers' start")


def statistics(rows: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for count in (rows // 4, rows // 2, rows):
            table(Path(folder) / str(count), count)
            started, busy = time.perf_counter(), processor_seconds()
            command = [sys.executable, "-m", "ucpe", "dataset", "stats", str(Path(folder) / str(count))]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds, busy = time.perf_counter() - started, processor_seconds() - busy
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
            print(f"ucpe dataset stats: {count} rows in {seconds:.1f} s ({busy:.1f} s of one core), {peak:.2f} GiB")


def table(folder: Path, count: int) -> None:
    """A dataset with as many rows as asked for, of random cameras, and few videos."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from ucpe.lenses import FAMILIES
    from ucpe.synthesis.clips import ClipSettings, synthesize
    from ucpe.synthesis.dataset import METADATA, read_metadata
    from ucpe.synthesis.rows import BLOCK

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
    parquet.write_table(rows, folder / METADATA, row_group_size=BLOCK)


def stages() -> None:
    """Processor seconds of curation, captions and full-size encoding on small inputs."""
    import cv2
    import numpy as np
    import torch
    from bench_curation import LENS, walk
    from diffusers import AutoencoderKLWan
    from torch.utils.flop_counter import FlopCounterMode

    from ucpe.synthesis.captions import EndpointCaptioner
    from ucpe.synthesis.curation.exporting import cut_clip
    from ucpe.synthesis.curation.pipeline import CurationSettings, curate_videos
    from ucpe.synthesis.curation.segmentation import Segmentation
    from ucpe.synthesis.curation.steps import write_proxy
    from ucpe.synthesis.curation.tracking import Tracking
    from ucpe.synthesis.dataset import export_webdataset, open_dataset
    from ucpe.synthesis.worlds import World, render_clip
    from ucpe.training.encoded import encode_video
    from ucpe.video import write_video

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world = World.sample(1, "outdoor")
        frames = render_clip(world, LENS, walk(world, 60, random), 320, 640, threads=1).color
        write_video(folder / "raw" / "walk.mp4", frames, 20)
        settings = CurationSettings(segmentation=Segmentation(min_seconds=2), tracking=Tracking(min_seconds=2))
        started = time.process_time()
        summary = curate_videos(folder / "raw", folder / "curated", settings.steps())
        seconds = time.process_time() - started
        print(f"curation: {seconds / 60:.2f} s a frame of 640 x 320 ({summary.kept} of {summary.clips} clips kept)")
        large = [cv2.resize(frame, (3840, 1920)) for frame in frames[:20]]
        write_video(folder / "large.mp4", large, 30, preset="veryfast", crf=22)
        started = time.process_time()
        write_proxy(folder / "large.mp4", folder / "proxy.mp4", 640)
        print(f"decoding 3840 x 1920 and writing the proxy: {(time.process_time() - started) / 20:.3f} s a frame")
        started = time.process_time()
        cut_clip(folder / "large.mp4", {"start": 0, "stop": 20, "fps": 30.0}, folder / "cut.mp4")
        print(f"cutting a clip of 3840 x 1920: {(time.process_time() - started) / 20:.3f} s a frame")
        clip = [cv2.resize(frames[index % 60], (832, 480)) for index in range(81)]
        write_video(folder / "clip.mp4", clip, 16)
        started = time.process_time()
        EndpointCaptioner("http://localhost/v1", "m").request(folder / "clip.mp4")
        print(f"preparing a request for a caption: {time.process_time() - started:.2f} s a clip of 81 x 480 x 832")
        table(folder, 400)
        for video in (folder / "videos").iterdir():
            video.write_bytes(random.bytes(2_000_000))
        started = time.process_time()
        export_webdataset(open_dataset(folder), folder / "shards")
        print(f"export: {(time.process_time() - started) / 400:.4f} s a clip of 2 MB")
    vae, video = AutoencoderKLWan().eval(), torch.zeros(1, 3, 5, 96, 160)
    with FlopCounterMode(display=False) as counter:
        started = time.process_time()
        encode_video(vae, video)
        seconds = time.process_time() - started
    rate = counter.get_total_flops() / seconds
    with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
        AutoencoderKLWan().encode(torch.empty(1, 3, 81, 480, 832))
    whole = counter.get_total_flops()
    print(
        f"Wan's autoencoder: {whole / 1e12:.0f} TFLOP a clip of 81 x 480 x 832; one core does {rate / 1e9:.0f} GFLOP a "
        f"second on 5 x 96 x 160, {whole / rate / 3600:.2f} core-hours a clip"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--stages", action="store_true")
    arguments = parser.parse_args()
    if arguments.stages:
        stages()
    elif arguments.ray:
        on_ray()
    elif arguments.rows:
        statistics(arguments.rows)
    else:
        overhead()
        nothing()


if __name__ == "__main__":
    import bench_work  # so that the workers of a cluster find the stages by this name

    bench_work.main()
