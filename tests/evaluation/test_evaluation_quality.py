import numpy as np
import pytest
import torch
from torch import nn

from ucpe.evaluation.frechet import Gaussian, frechet_distance
from ucpe.evaluation.inputs import Job, read_clip
from ucpe.evaluation.quality import (
    QualitySettings,
    gaussian_of_images,
    gaussian_of_videos,
    measure_quality,
    spread_frames,
)
from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory
from ucpe.video import write_video


class Means(nn.Module):
    """A stand-in for a feature network: mean colours of the four quarters of an image or video."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.float() / 255 if x.dtype == torch.uint8 else x
        if x.ndim == 5:
            x = x.mean(2)
        return nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


class Released(nn.Module):
    """The interface of the released networks: any size in, class probabilities unless asked for features."""

    def __init__(self, video: bool):
        super().__init__()
        self.video = video

    def forward(
        self, x: torch.Tensor, rescale: bool = False, resize: bool = False, return_features: bool = False
    ) -> torch.Tensor:
        assert x.shape[-2] == 32 and x.shape[-1] == 48
        assert (rescale and resize) == self.video
        x = x.float().mean(2) if self.video else x.float()
        features = nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)
        return features if return_features else features.softmax(1)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quality")
    generator = np.random.default_rng(0)
    made = []
    for index in range(4):
        frames = generator.integers(0, 255, (5, 32, 48, 3), np.uint8)
        shifted = np.clip(frames.astype(int) + 60, 0, 255).astype(np.uint8)
        write_video(folder / f"real-{index}.mp4", frames, 8)
        write_video(folder / f"made-{index}.mp4", shifted, 8)
        camera = Trajectory.static(Pinhole(xfov=90), frames=5, fps=8)
        made.append(
            Job(str(index), folder / f"made-{index}.mp4", camera, caption="x", reference=folder / f"real-{index}.mp4")
        )
    return made


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "means.pt"
    torch.jit.script(Means()).save(str(path))
    return str(path)


def test_fid_and_fvd_are_the_frechet_distance_of_features(jobs, network):
    results = measure_quality(jobs, QualitySettings(fid=network, fvd=network, device="cpu"))
    assert results["FID"].value > 0.01
    assert "too few" not in results["FID"].note
    assert "too few" in results["FVD"].note  # 4 videos for 12 dimensions

    sides = [
        gaussian_of_videos((read_clip(path).frames for path in paths), Means(), torch.device("cpu"))
        for paths in ([job.video for job in jobs], [job.reference for job in jobs])
    ]
    assert results["FVD"].value == pytest.approx(frechet_distance(*sides), rel=1e-5)


def test_fid_takes_all_frames_if_asked(jobs, network):
    found = measure_quality(jobs, QualitySettings(fid=network, frames=None, device="cpu"))["FID"].value
    sides = []
    for paths in ([job.video for job in jobs], [job.reference for job in jobs]):
        frames = np.concatenate([read_clip(path).frames for path in paths])
        assert len(frames) == 5 * len(jobs)
        sides.append(gaussian_of_images([frames], torch.jit.load(network), torch.device("cpu")))
    assert found == pytest.approx(frechet_distance(*sides), rel=1e-5)


def test_released_networks_are_asked_for_features_and_resize_themselves(jobs, tmp_path):
    """Without the switch they give probabilities, and the distance would be about a ten thousandth of this."""
    paths = {}
    for name, video in (("fid", False), ("fvd", True)):
        paths[name] = str(tmp_path / f"{name}.pt")
        torch.jit.script(Released(video)).save(paths[name])
    results = measure_quality(jobs, QualitySettings(**paths, device="cpu"))
    for name, video in (("FID", False), ("FVD", True)):
        assert not results[name].reason, results[name]
        sides = []
        for clips in ([job.video for job in jobs], [job.reference for job in jobs]):
            batches = [read_clip(path).frames for path in clips]
            batches = [
                spread_frames(frames, 16).mean(0, keepdims=True) if video else spread_frames(frames, 16)
                for frames in batches
            ]
            quarters = np.concatenate(
                [b.reshape(len(b), 2, 16, 2, 24, 3).mean((2, 4)).reshape(len(b), -1) for b in batches]
            )
            sides.append(Gaussian.of(quarters))
        assert results[name].value == pytest.approx(frechet_distance(*sides), rel=1e-3)
        assert results[name].value > 100
        assert results[name].weights == paths[name.lower()]


def test_videos_that_cannot_be_read_or_have_no_caption_are_counted(jobs, network, tmp_path):
    (tmp_path / "cut.mp4").write_bytes(b"")
    more = [*jobs, Job("cut", tmp_path / "cut.mp4", jobs[0].camera)]
    assert "1 videos could not be read" in measure_quality(more, QualitySettings(fid=network, device="cpu"))["FID"].note


def test_whatever_a_model_raises_is_a_reason(jobs, monkeypatch):
    from ucpe.evaluation import quality

    def broken(*_):
        raise AttributeError("'Model' object has no attribute 'score'")

    monkeypatch.setattr(quality, "_qalign", broken)
    results = measure_quality(jobs, QualitySettings(qalign="somewhere", device="cpu"))
    assert "has no attribute 'score'" in results["Q-Align"].reason


def test_equal_sets_have_no_distance(jobs, network):
    same = [Job(job.name, job.reference, job.camera, reference=job.reference) for job in jobs]
    results = measure_quality(same, QualitySettings(fid=network, device="cpu"))
    assert results["FID"].value == pytest.approx(0, abs=1e-6)


def test_missing_weights_give_one_reason_and_the_rest_comes_out(jobs, network):
    results = measure_quality(
        jobs,
        QualitySettings(fid="nowhere.pt", fvd=network, clip="/no/such/clip", qalign="/no/such/model", device="cpu"),
    )
    assert "no file nowhere.pt" in results["FID"].reason
    assert results["FVD"].value is not None
    assert "could not be computed with weights /no/such/clip" in results["CLIP"].reason
    assert "--trust-remote-code" in results["Q-Align"].reason
    assert all("\n" not in entry.reason for entry in results.values())


def test_what_a_metric_needs_is_said(jobs, network):
    bare = [Job(job.name, job.video, job.camera) for job in jobs]
    results = measure_quality(bare, QualitySettings(fid=network, device="cpu"))
    assert "reference videos" in results["FID"].reason
    assert measure_quality(jobs, QualitySettings()) == {}


def test_clip_score_with_a_tiny_real_model(jobs, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"<|startoftext|>": 0, "<|endoftext|>": 1, "x</w>": 2, "x": 3}
    tokenizer = transformers.CLIPTokenizer(vocab=vocabulary, merges=[])
    shared = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    configuration = transformers.CLIPConfig(
        text_config={**shared, "vocab_size": 4, "max_position_embeddings": 8, "bos_token_id": 0, "eos_token_id": 1},
        vision_config={**shared, "image_size": 32, "patch_size": 16},
        projection_dim=8,
    )
    torch.manual_seed(0)
    transformers.CLIPModel(configuration).save_pretrained(tmp_path)
    image = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    transformers.CLIPProcessor(image, tokenizer).save_pretrained(tmp_path)
    assert tokenizers.__version__
    result = measure_quality(jobs, QualitySettings(clip=str(tmp_path), device="cpu"))["CLIP"]
    assert not result.reason, result
    assert 0 <= result.low <= result.value <= result.high <= 100


def test_frames_are_spread_over_the_whole_video():
    frames = np.arange(10)[:, None, None, None]
    assert spread_frames(frames, 4).ravel().tolist() == [0, 3, 6, 9]
    assert spread_frames(frames[:2], 4).ravel().tolist() == [0, 0, 1, 1]


def test_gaussian_needs_features():
    with pytest.raises(ValueError, match="at least two"):
        Gaussian.of(np.zeros((1, 3)))
