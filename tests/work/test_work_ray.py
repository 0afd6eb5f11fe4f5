"""The same work on a real Ray cluster of three nodes: killed nodes, workers and drivers change nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from work_stages import Fractions, Squares, items

from ucpe.work import Quarantine, run

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
SCRIPT = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from work_stages import main; main()"


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    path = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    os.environ["PYTHONPATH"] = path
    small = {"object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1, **small})
    for _ in range(2):
        cluster.add_node(num_cpus=1, **small)
    cluster.wait_for_nodes()
    os.environ["RAY_ADDRESS"] = cluster.address
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    del os.environ["RAY_ADDRESS"]


def parts_of(folder) -> dict[str, bytes]:
    kept = [path for name in ("parts", "files") for path in (Path(folder) / name).iterdir()]
    return {path.name: path.read_bytes() for path in kept if not path.name.startswith(".")}


def until(condition):
    for _ in range(600):
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


def written(folder: Path) -> dict[str, bytes]:
    """Everything that a command wrote, without its locks."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "lock" not in path.name]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_commands_give_the_same_bytes_as_on_this_machine(cluster, tmp_path):
    """Filming, export, and evaluation with stored estimates."""
    from ucpe.evaluation.estimators import EstimatorChoice
    from ucpe.evaluation.inputs import jobs_of_folder
    from ucpe.evaluation.run import EvaluationSettings, evaluate
    from ucpe.synthesis.clips import ClipSettings, synthesize
    from ucpe.synthesis.dataset import export_webdataset, open_dataset
    from ucpe.trajectories import Trajectory

    found = {}
    for engine in ("local", "ray"):
        place = tmp_path / engine / "dataset"
        synthesize(["worlds:outdoor"], place, 3, ClipSettings(frames=4, height=32, width=64, seed=3), engine=engine)
        export_webdataset(open_dataset(place), tmp_path / engine / "shards", 2, engine=engine)
        found[engine] = {name: body for name, body in written(tmp_path / engine).items() if ".synthesis" not in name}
    assert found["local"] == found["ray"] and len(found["local"]) >= 6
    videos = tmp_path / "local" / "dataset" / "videos"
    dataset = open_dataset(tmp_path / "local" / "dataset")
    for index in range(len(dataset)):
        camera: Trajectory = dataset.clip(index).camera
        camera.save(tmp_path / "cameras" / f"{dataset.clip(index).video.stem}.json")
        camera.save(tmp_path / "poses" / f"{dataset.clip(index).video.stem}.npz")
    settings = EvaluationSettings(pose=EstimatorChoice("stored", tmp_path / "poses"), calibrator=None)
    jobs = jobs_of_folder(videos, tmp_path / "cameras")
    assert evaluate(jobs, tmp_path / "one", settings) == evaluate(jobs, tmp_path / "two", settings, engine="ray")
