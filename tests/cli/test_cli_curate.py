"""`ucpe curate`: its usage, its options, and folders without videos or clips."""

from types import SimpleNamespace

import pytest

from ucpe.cli.curate import main
from ucpe.synthesis.curation import pipeline


def test_options_reach_the_steps(tmp_path, monkeypatch, capsys):
    main([])
    assert "ucpe curate VIDEOS ... -o curated/" in capsys.readouterr().out
    asked = {}

    def record(videos, output, steps, **options):
        asked.update(locals())
        return SimpleNamespace(kept=1, clips=2, videos=3, set_aside={"a.mp4": "flat"}, failed={})

    monkeypatch.setattr(pipeline, "curate_videos", record)
    main([str(tmp_path), "-o", str(tmp_path / "out"), "--overlay.max-watermark", "0.25", "--keep-rig", "--shards", "2"])
    overlay = next(step for step in asked["steps"] if step.name == "overlay")
    assert (overlay.max_watermark, overlay.keep_rig, asked["options"]["shards"]) == (0.25, True, 2)
    told = capsys.readouterr().out
    assert "1 of 2 clips kept, from 3 videos" in told and "a.mp4: flat" in told


def test_nothing_to_curate_or_report(tmp_path):
    with pytest.raises(ValueError, match="no video"):
        main([str(tmp_path), "-o", str(tmp_path / "out")])
    with pytest.raises(ValueError, match=str(tmp_path)):
        main(["report", str(tmp_path)])
