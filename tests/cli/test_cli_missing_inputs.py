"""Commands that are given what is not there say so, by name, before they work."""

import importlib

import pytest

from ucpe.cli import COMMANDS

NOWHERE = {
    "lens": ["show", "nowhere.yaml"],
    "trajectory": ["show", "nowhere.json"],
    "encoding": ["show", "nowhere"],
    "adapter": ["info", "nowhere"],
    "render": ["nowhere.mp4"],
    "curate": ["nowhere"],
    "synthesize": ["nowhere.jsonl"],
    "dataset": ["stats", "nowhere"],
    "train": ["nowhere"],
    "generate": ["a tower", "--camera", "nowhere.json"],
    "check": ["nowhere.mp4"],
    "evaluate": ["nowhere", "--cameras", "nowhere"],
    "report": ["compare", "nowhere"],
    "track": ["nowhere.mp4"],
    "match": ["nowhere", "--motions", "nowhere"],
    "bench": ["latency", "nowhere"],
}


def test_every_command_that_takes_an_input_is_tried():
    assert {*NOWHERE, "studio"} == set(COMMANDS)


@pytest.mark.parametrize(
    "command", ["curate s3://b/raw", "synthesize worlds -o s3://b", "dataset export d --output=gs://b"]
)
def test_an_object_store_is_refused_instead_of_a_folder_of_its_name(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, *arguments = command.split()
    with pytest.raises(ValueError, match=r"://b.*: only paths of this machine are read and written; mount it"):
        importlib.import_module(f"ucpe.cli.{name}").main(arguments)
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.parametrize("command", NOWHERE)
def test_a_missing_input_is_named(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises((ValueError, OSError), match="nowhere"):
        importlib.import_module(f"ucpe.cli.{command}").main(NOWHERE[command])
    assert not list(tmp_path.iterdir()), "nothing is written"
