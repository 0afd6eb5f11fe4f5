import json

import pytest
import torch
from recipes.desk.autoencoder import AutoencoderRecipe, main, train_autoencoder
from recipes.desk.estimators import DeskTraining, train

from ucpe.desk import clips as desk_clips
from ucpe.evaluation.estimators import desk


def test_autoencoder_trains_and_continues_bit_for_bit(tmp_path):
    clips = tmp_path / "clips"
    desk_clips.render_shard(0, 0, clips, samples=1, clips=2)
    recipe = AutoencoderRecipe(
        channels=16,
        base_dim=12,
        decoder_base_dim=4,
        steps=4,
        batch=1,
        frames=5,
        height=32,
        width=32,
        checkpoint_every=2,
        warmup=2,
        critic_weight=0.4,
        critic_from=1,
    )
    whole = train_autoencoder(recipe, clips, tmp_path / "whole", quiet=True)
    fields = "--channels 16 --base-dim 12 --decoder-base-dim 4 --steps 4 --batch 1 --frames 5 --height 32 --width 32"
    fields += " --warmup 2 --critic-weight 0.4 --critic-from 1"
    folders = ["--data", str(clips), "-o", str(tmp_path / "parts")]
    main([*folders, *fields.split(), "--checkpoint-every", "2"])
    curve = (tmp_path / "parts/metrics.jsonl").read_text()
    assert curve == (tmp_path / "whole/metrics.jsonl").read_text()
    for part in ("checkpoints", "critic"):
        (tmp_path / "parts" / part / "step-0000004.safetensors").unlink()
    assert [round(json.loads(line).get("told", 0)) for line in curve.splitlines()] == [0, 2, 2, 2]
    again = train_autoencoder(recipe, clips, tmp_path / "parts", quiet=True)
    assert (tmp_path / "parts/metrics.jsonl").read_text() == curve
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    assert again.config.latents_std != [1.0] * 16


def test_training_of_the_estimators_stops_and_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(desk_clips, "CLIPS_PER_SHARD", 3)
    steps = {f"{name}_steps": 2 for name in ("calibrator", "flow", "matcher", "matching")}
    settings = DeskTraining(shards=1, batch=4, matcher_batch=4, **steps)
    lines: list[str] = []
    path = train(tmp_path / "clips", tmp_path / "out", settings, log=lines.append)
    calibrator, motion, metadata = desk.load_weights(path)
    assert metadata["training"]["calibrator_steps"] == 2
    assert json.loads(lines[-1]) == metadata["floors"]
    before = path.read_bytes()
    lines.clear()
    path.unlink()
    desk.load_weights.cache_clear()
    assert train(tmp_path / "clips", tmp_path / "out", settings, log=lines.append).read_bytes() == before
    assert not any("step" in line for line in lines)
    assert sum(p.numel() for p in calibrator.parameters()) + sum(p.numel() for p in motion.parameters()) < 1_000_000
    with pytest.raises(ValueError, match="no desk estimator weights"):
        desk.load_weights(tmp_path / "nowhere.safetensors")
