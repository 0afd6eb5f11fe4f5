"""`ucpe match`: its usage, motions from moves, and what it must be given."""

import json

import pytest

from ucpe.cli.match import main
from ucpe.synthesis.motion.candidates import read_motions
from ucpe.synthesis.motion.figures import draw_balance


def test_motions_of_moves(tmp_path, capsys):
    main([])
    assert "ucpe match CURATED --motions motions/" in capsys.readouterr().out
    main(["motions", "moves", "-o", str(tmp_path / "motions")])
    told = capsys.readouterr().out
    motions, dropped = read_motions(tmp_path / "motions")
    assert f"{len(motions)} motions" in told and "not used: mentions zoom" in told
    assert dropped["mentions zoom"] == 4


def test_the_command_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="no folder"):
        main(["motions", str(tmp_path / "nothing"), "-o", str(tmp_path / "m")])
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "test.jsonl").write_text(json.dumps({"path": "a.mp4", "labels": []}))
    with pytest.raises(ValueError, match="up vectors"):
        main(["motions", str(tmp_path / "bench"), "-o", str(tmp_path / "m")])
    with pytest.raises(ValueError, match="no category"):
        draw_balance({"clips": {}}, tmp_path / "x.png")
