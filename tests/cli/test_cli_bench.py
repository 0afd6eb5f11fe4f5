"""`ucpe bench`: options reach the comparisons, and what cannot be is refused."""

import pytest

from ucpe.bench import encodings, generation
from ucpe.bench.pair_model import ADAPTERS
from ucpe.cli.bench import main


def test_what_there_is_to_compare(capsys):
    main([])
    told = capsys.readouterr().out
    assert all(f"  {name} " in told for name in ("encodings", "generation", "latency"))
    with pytest.raises(SystemExit, match="no comparison 'adapters'; there are encodings, generation, latency"):
        main(["adapters"])
    with pytest.raises(ValueError, match="name --quick or --long, not both"):
        main(["encodings", "--quick", "--long"])


def test_encodings_lists_contestants_and_passes_options_on(tmp_path, monkeypatch, capsys):
    main(["encodings", "--list"])
    assert "plucker-pixel" in capsys.readouterr().out
    asked = {}

    def record(benchmark, output, clips, workers, minutes, progress, engine, retry_failed):
        asked.update(locals())
        return {}

    monkeypatch.setattr(encodings, "run_benchmark", record)
    monkeypatch.setattr(encodings, "markdown", lambda results: "the tables")
    main(["encodings", "--quick", "-o", str(tmp_path), "--contestants", "none", "ucpe", "--encoding", "a:B",
          "--minutes", "5", "--seeds", "4"])  # fmt: skip
    benchmark = asked["benchmark"]
    assert benchmark.contestants == ("none", "ucpe", "a:B")
    assert (benchmark.seeds, benchmark.training.steps, benchmark.trainings) == (4, 300, ("all",))
    assert (asked["minutes"], asked["output"], asked["clips"]) == (5, tmp_path / "300-steps", tmp_path / "clips")
    assert "the tables" in capsys.readouterr().out


def test_generation_lists_contestants_and_passes_options_on(tmp_path, monkeypatch, capsys):
    main(["generation", "--list"])
    assert "cameractrl" in capsys.readouterr().out
    asked = {}

    def record(benchmark, output, clips, workers, minutes, progress, engine, retry_failed):
        asked.update(locals())

    monkeypatch.setattr(generation, "run_benchmark", record)
    monkeypatch.setattr(generation, "markdown", lambda results: "the tables")
    main(["generation", "--long", "-o", str(tmp_path), "--adapter", "a:B", "--contestants", "ucpe", "--cameras", "3"])
    benchmark = asked["benchmark"]
    assert (benchmark.contestants, benchmark.steps, benchmark.cameras) == (("ucpe", "a:B"), 7000, 3)
    assert asked["output"] == tmp_path / "7000-steps" and "the tables" in capsys.readouterr().out


def test_frozen_lists_contestants_and_passes_options_on(tmp_path, monkeypatch, capsys):
    main(["generation", "frozen", "--list"])
    assert "cameractrl-relative" in capsys.readouterr().out
    asked = {}

    def note(benchmark, output, clips, workers, minutes, progress, engine, retry_failed):
        asked.update(locals())

    monkeypatch.setattr(generation, "run_benchmark", note)
    monkeypatch.setattr(generation, "markdown", lambda results: "the tables")
    main(["generation", "frozen", "--quick", "-o", str(tmp_path), "--contestants", "ucpe", "gta-lat-up", "--seeds", "4",
          "--minutes", "5", "--base", "mine.safetensors"])  # fmt: skip
    benchmark = asked["benchmark"]
    assert (benchmark.contestants, benchmark.seeds, benchmark.steps) == (("ucpe", "gta-lat-up"), 4, 200)
    assert (benchmark.base, asked["minutes"]) == ("mine.safetensors", 5)
    assert asked["output"] == tmp_path / "200-steps-frozen" and "the tables" in capsys.readouterr().out
    main(["generation", "frozen", "-o", str(tmp_path)])
    assert asked["benchmark"] == generation.FROZEN and asked["benchmark"].contestants == tuple(ADAPTERS)
