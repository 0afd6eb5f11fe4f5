"""`ucpe train`."""

import json

import pytest
from tests.training.conftest import clip_folder, t2v, tiny_recipe  # noqa: F401

from ucpe.cli.train import main
from ucpe.training.progress import read_curve
from ucpe.training.recipes import RECIPES
from ucpe.training.runs import run
from ucpe.work import folder_lock

SIZES = [
    "--frames",
    "5",
    "--height",
    "32",
    "--width",
    "48",
    "--text-tokens",
    "8",
    "--precision",
    "no",
    "--workers",
    "0",
]


def test_list_names_every_recipe(capsys):
    main(["--list"])
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert listed == {*RECIPES, "desk-clips"}


def test_any_field_of_a_recipe_can_be_set(t2v, clip_folder, tmp_path, capsys):  # noqa: F811
    arguments = ["ucpe-half", "--model", str(t2v), "--data", str(clip_folder), "-o", str(tmp_path / "run"), *SIZES]
    fields = ["--steps", "2", "--batch", "2", "--learning-rate", "3e-4", "--no-orientation", "--shift", "4"]
    main([*arguments, *fields, "--cache", str(tmp_path / "cache")])
    assert capsys.readouterr().out.strip() == str(tmp_path / "run/adapter")
    recipe = json.loads((tmp_path / "run/recipe.json").read_text())
    chosen = {name: recipe[name] for name in ("learning_rate", "orientation", "compression")}
    assert chosen == {"learning_rate": 3e-4, "orientation": False, "compression": 2}
    assert recipe["objective"]["shift"] == 4
    assert [line["step"] for line in read_curve(tmp_path / "run/metrics.jsonl")] == [0, 1]
    assert (tmp_path / "run/adapter/config.json").is_file()
    assert list((tmp_path / "run/logs").rglob("events.out.tfevents.*"))


def test_dry_run_prints_what_a_run_needs(t2v, clip_folder, tmp_path, capsys):  # noqa: F811
    arguments = ["ucpe", "--model", str(t2v), "--data", str(clip_folder), "--compression", "2", *SIZES]
    main([*arguments, "--cache", str(tmp_path), "-o", str(tmp_path / "run"), "--batch", "2", "--dry-run"])
    output = capsys.readouterr().out
    for words in ("trainable parameters", "activations", "steps per epoch", "first batch             loss"):
        assert words in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ucpe"], "--data FOLDER"),
        (["--data", "x"], "the recipe comes first"),
        (["nothing"], "there is no recipe 'nothing'"),
        (["none.py"], "there is no file none.py"),
    ],
)
def test_wrong_commands_say_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        main(arguments)


def test_desk_clips_are_rendered_by_the_command(tmp_path, monkeypatch, capsys):
    from ucpe.desk import clips as desk_clips

    monkeypatch.setattr(desk_clips, "CLIPS_PER_SHARD", 1)
    main(["desk-clips", "-o", str(tmp_path), "--shards", "1", "--validation"])
    clips = desk_clips.load_shard(tmp_path / "clips-00000.safetensors")
    assert clips.video.shape == (1, 17, 64, 112, 3)
    assert clips.seeds.item() == desk_clips.VALIDATION_SEED


def test_a_folder_that_another_run_writes_into_is_refused(tiny_recipe, t2v, clip_folder, tmp_path):  # noqa: F811
    with folder_lock(tmp_path), pytest.raises(ValueError, match=r"another run is writing here \(process \d+"):
        run(tiny_recipe(t2v), clip_folder, tmp_path, tracker=None, quiet=True)
