"""`ucpe generate`, the real command on the desk model."""

import json
import re
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import ucpe.cli
from ucpe import desk
from ucpe.cli.generate import Generate, asked_for, make_requests
from ucpe.cli.parsing import parse
from ucpe.generation.checks import read_facts
from ucpe.generation.requests import read_again
from ucpe.lenses import UCM, Pinhole
from ucpe.training.export import generation_defaults
from ucpe.training.recipes import RECIPES
from ucpe.trajectories import Trajectory
from ucpe.video import read_frames

PROMPT = "a red tower on grass, hills on the horizon, under a clear sky"
QUICK = ("--steps", "1", "--frames", "5")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Call the command in this process, in an empty folder: exit code, what it printed, what it complained of."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["ucpe", "generate", *map(str, arguments)])
        code = 0
        try:
            ucpe.cli.main()
        except SystemExit as left:
            code = left.code or 0
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def no_weights(monkeypatch):
    """Nothing may load a weight."""

    def refuse(*_, **__):
        raise AssertionError("a weight was loaded")

    monkeypatch.setattr("ucpe.generation.setup.load_pipeline", refuse)


def test_a_video_its_record_and_the_video_made_again(run, tmp_path):
    options = f"--lens fisheye --move zoom-in --factor 1.3 --pitch -5 {' '.join(QUICK)} --seed 3 --preview -o out/a.mp4"
    command = [sys.executable, "-m", "ucpe", "generate", PROMPT, *options.split()]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout.count("\n") == 1 and "5 frames of 64 x 112 in " in result.stdout
    assert "peak memory" in result.stdout and "out/a.mp4, out/a.json, out/a.png" in result.stdout
    assert "denoising steps: 1 of 1" in result.stderr and "warning" not in result.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.json", "a.mp4", "a.png"]
    request = read_again(tmp_path / "out/a.json")
    assert (request.seed, request.steps, request.guidance, request.height, request.width) == (3, 1, 3.0, 64, 112)
    assert (request.setup.device, request.setup.dtype) == ("cpu", "fp32")
    assert request.camera.lens.batch_shape == (5,) and request.camera.angles.pitch[0].item() == pytest.approx(-5)

    code, printed, _ = run("--again", "out/a.json", "-o", "b.mp4")
    first, again = (read_frames(path).astype(int) for path in (tmp_path / "out/a.mp4", tmp_path / "b.mp4"))
    assert code == 0 and np.abs(again - first).mean() < 0.5  # rounding may differ between the two processes
    before = (tmp_path / "b.mp4").stat().st_mtime_ns
    code, printed, _ = run("--again", "out/a.json", "-o", "b.mp4")
    assert "b.mp4 is there already" in printed and (tmp_path / "b.mp4").stat().st_mtime_ns == before
    code, printed, _ = run("--again", "out/a.json", "-o", "b.mp4", "--seed", "4")
    assert "there already" not in printed and (tmp_path / "b.mp4").stat().st_mtime_ns != before


def test_every_option_reaches_the_model_and_the_record(run, tmp_path):
    (tmp_path / "bad.txt").write_text("snow\n")
    Image.fromarray(np.full((64, 112, 3), 90, np.uint8)).save(tmp_path / "first.png")
    state = {}
    for name, shape in (("A", (4, 192)), ("B", (192, 4))):
        state[f"transformer.blocks.0.attn1.to_q.lora_{name}.weight"] = torch.randn(shape)
    save_file(state, tmp_path / "fast.safetensors")
    options = ["--dtype", "bf16", "--tiling", "--attention", "native", "--preset", "released", "--shift", "7"]
    options += ["--negative-file", "bad.txt", "--lora", "fast.safetensors:0.5", "--image", "first.png"]
    code, _, complaints = run(PROMPT, *options, "--steps", "2", "--frames", "5", "-o", "a.mp4")
    assert code == 0, complaints
    request = read_again(tmp_path / "a.json")
    setup = request.setup
    assert (setup.dtype, setup.tiling, setup.attention, setup.scheduler, setup.shift) == (
        "bf16", True, "native", "euler", 7.0,
    )  # fmt: skip
    assert setup.lora == (f"{tmp_path / 'fast.safetensors'}:0.5",)
    assert (request.negative, request.guidance, request.steps) == ("snow", 5.0, 2)
    assert request.image == tmp_path / "first.png"
    video = read_frames(tmp_path / "a.mp4")
    for changed in (["--shift", "1"], ["--lora", "fast.safetensors:-3"]):
        assert run("--again", "a.json", "-o", "b.mp4", *changed)[0] == 0
        assert not np.array_equal(read_frames(tmp_path / "b.mp4"), video), changed


def test_what_the_model_does_not_know_is_said_before_it_is_loaded(run, no_weights):
    arguments = ["a red zebra on grass", "--move", "pan-left", "--degrees", "80", "--pitch", "40", "--xfov", "70"]
    _, _, complaints = run(*arguments, "-o", "a.mp4")
    for words in (
        "does not know the words zebra",
        "pitch is 40 degrees, and the model was trained up to 30",
        "turns by 80 degrees, and the model was trained up to 60",
        "field of view is 70 degrees, and the model was trained from 90 on",
    ):
        assert words in complaints


BAD = [
    ((), "say what to see.*Got none of them"),
    (("",), "the prompt is empty: say what to see"),
    (("  ",), "the prompt is empty"),
    ((PROMPT, "--guidance-2", "3"), "Unrecognized options: --guidance-2, 3; perhaps you meant --guidance"),
    ((PROMPT, "--steps", "many"), "--steps: expected a whole number, got 'many'"),
    ((PROMPT, "--scale", "big"), r"--scale: expected FLOAT\|\{auto\}, got 'big'"),
    ((PROMPT, "--dtype", "int8"), "invalid choice 'int8' for argument '--dtype'"),
    ((PROMPT, "--lens"), "Missing value for argument '--lens'"),
    ((PROMPT, "more", "words"), "Unrecognized options: more, words"),
    ((PROMPT, "--steps", "100000"), "--steps must be between 1 and 10000, got 100000"),
    ((PROMPT, "--list", "x.json"), "Got a prompt and --list"),
    ((PROMPT, "-o", "."), "is a folder: name a file"),
    ((PROMPT, "-o", "a.avi"), "written as .mp4"),
    ((PROMPT, "-o", "file/a.mp4"), "cannot be written: .*file is a file"),
    ((PROMPT, "-o", "/proc/a.mp4"), "/proc/a.mp4 cannot be written: "),
    ((PROMPT, "--frames", "18"), "18 frames; the model makes 4 n .* --frames 17 or 21"),
    ((PROMPT, "--height", "70"), "--height must be a multiple of 16 pixels.*use 64"),
    ((PROMPT, "--steps", "0"), "--steps must be between 1"),
    ((PROMPT, "--seed", "-1"), "--seed must be between 0"),
    ((PROMPT, "--guidance", "nan"), "--guidance must be between"),
    ((PROMPT, "--device", "cuda:7"), "--device cuda:7 cannot be used here"),
    ((PROMPT, "--device", "cpu", "--offload", "model"), "--offload model moves weights"),
    ((PROMPT, "--attention", "psychic"), "--attention must be one of .*native.*got 'psychic'"),
    ((PROMPT, "--lora", "gone.safetensors"), "--lora gone.safetensors: no such file"),
    ((PROMPT, "--lora", "a/b:heavy"), "must be a number, got 'heavy'"),
    ((PROMPT, "--lora", "file"), "--lora file: not a readable .safetensors file"),
    ((PROMPT, "--lora", "other.safetensors"), "holds no LoRA"),
    ((PROMPT, "--lora", "nobody/nothing"), "cannot get nobody/nothing from the hub .*hf download nobody/nothing"),
    ((PROMPT, "--model", "nobody/nothing"), "cannot get nobody/nothing from the hub .*name that folder"),
    ((PROMPT, "--adapter", "nobody/nothing"), "cannot get nobody/nothing from the hub .*name that folder"),
    ((PROMPT, "--adapter", ""), "no folder '', and it is no hub id"),
    ((PROMPT, "--shift", "0"), "--shift must be a positive number"),
    ((PROMPT, "--image", "gone.png"), "gone.png: No such file"),
    ((PROMPT, "--image", "file"), "file: not a readable image"),
    ((PROMPT, "--negative", "a", "--negative-file", "file"), "not both"),
    ((PROMPT, "--negative-file", "gone.txt"), "gone.txt: No such file"),
    ((PROMPT, "--model", "folder"), "no folder camera_adapter"),
    ((PROMPT, "--adapter", "gone.bin"), "no adapter file gone.bin"),
    ((PROMPT, "--move", "teleport"), "no move 'teleport'"),
    ((PROMPT, "--fps", "-3"), "--fps must be a positive number, got -3"),
    ((PROMPT, "--frames", "0"), "--frames must be a positive number, got 0"),
    (("--list", "gone.json", "-o", "o"), "gone.json"),
    (("--list", "file", "-o", "o"), "must hold a list"),
    (("--list", "out.json", "-o", "o"), "entry 0: '../x.json' leads out of the folder"),
    (("--list", "out.json", "--move", "pan"), "already says what the camera is"),
    (("--again", "file"), "file"),
]


@pytest.mark.parametrize("arguments, message", BAD, ids=[" ".join(map(str, row[0][-2:])) for row in BAD])
def test_bad_input_is_one_line_before_a_weight_is_loaded(run, no_weights, monkeypatch, tmp_path, arguments, message):
    (tmp_path / "file").write_text("hello")
    (tmp_path / "folder").mkdir()
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    (tmp_path / "out.json").write_text(json.dumps([{"prompt": "a", "camera": "../x.json"}]))
    there = sorted(tmp_path.iterdir())
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    code, printed, complaints = run(*arguments)
    assert code == 1 and printed == ""
    assert not waits  # the hub's own retries take 23 seconds
    line = complaints.splitlines()[-1]
    assert line.startswith("ucpe generate: ") and "unexpected" not in line
    assert len([one for one in complaints.splitlines() if "warning:" not in one]) == 1
    assert re.search(message, line), line
    assert sorted(tmp_path.iterdir()) == there


def checkout(root, frames=90):
    """Our own small files in the layout of the authors' checkout."""
    panshot, estate = root / "data/UCPE/PanShot/pose-test", root / "data/RealEstate10k/pose_files/test"
    for folder in (panshot, estate, root / "data/UCPE/PanFlow", root / "demo"):
        folder.mkdir(parents=True)
    turned = Trajectory.arc(UCM(xfov=100, xi=0.0), degrees=30, frames=81, yaw=50, pitch=-10)
    turned.to(torch.float32).save(panshot / "a-b-3-0-yaw_aug_0.npy")
    ahead = Trajectory.dolly(UCM(xfov=100, xi=0.0), distance=2, frames=frames, yaw=70)
    ahead.with_lens(ucpe.Pinhole(xfov=90)).save(estate / "0123456789abcdef.txt", format="realestate10k")
    depth = {"video_id": "a-b", "clip_id": 3, "near_depth": 0.5}
    (root / "data/UCPE/PanFlow/near_plane_depth-test.jsonl").write_text(json.dumps(depth) + "\n")
    (root / "data/RealEstate10k/traj_normalization.txt").write_text("9.5e-01\n")
    first = {"pose_path": "data/UCPE/PanShot/pose-test/a-b-3-0-yaw_aug_0.npy", "x_fov": 180.0, "xi": 2.0}
    second = {"pose_path": "data/RealEstate10k/pose_files/test/0123456789abcdef.txt", "x_fov": 100.0, "xi": 0.0}
    entries = [{**first, "caption": "a tree on sand"}, {**second, "caption": "a house on snow"}]
    (root / "demo/two.json").write_text(json.dumps(entries))
    return turned


def test_a_released_list_is_made_at_the_models_length_and_continues(run, tmp_path):
    turned = checkout(tmp_path)
    code, printed, complaints = run("--list", "demo/two.json", "--steps", "1", "-o", "videos")
    assert code == 0 and "videos: 2 of 2" in complaints and printed.count("peak memory") == 2
    first, second = (read_again(tmp_path / f"videos/{index:03d}.json") for index in range(2))
    assert (first.prompt, second.prompt) == ("a tree on sand", "a house on snow")
    assert [len(request.camera) for request in (first, second)] == [17, 17] and first.camera.fps == 8
    assert float(first.camera.lens.xfov(64, 112)) == pytest.approx(180)
    assert first.camera.path_length() == pytest.approx(2 * turned.path_length(), rel=1e-3)
    assert first.camera.angles.yaw[0].abs() < 1e-4 and first.camera.angles.pitch[0].item() == pytest.approx(
        -10, abs=1e-4
    )
    torch.testing.assert_close(second.camera.c2w[0], torch.eye(4, dtype=torch.float64))
    moved = 2 * 80 / 89 * 0.95
    torch.testing.assert_close(second.camera.positions[-1], torch.tensor([0, 0, moved]).double(), atol=1e-6, rtol=0)

    (tmp_path / "videos/001.mp4").unlink()
    code, printed, _ = run("--list", "demo/two.json", "--steps", "1", "-o", "videos")
    assert code == 0 and "videos/000.mp4 is there already" in printed and printed.count("peak memory") == 1
    assert (tmp_path / "videos/001.mp4").is_file()


def test_paths_of_a_list_are_placed_and_their_calibrations_fitted(tmp_path, monkeypatch):
    lens = Pinhole(fx=400, width=640, height=480)
    tilted = Trajectory.dolly(lens, distance=2, frames=20, fps=8).transformed(Trajectory.static(lens, roll=88).c2w[0])
    tilted.save(tmp_path / "path.json")
    (tmp_path / "list.json").write_text(json.dumps([{"prompt": PROMPT, "camera": "path.json"}]))
    monkeypatch.chdir(tmp_path)

    def requests(*arguments):
        options = parse(Generate, ["--list", "list.json", *arguments], "ucpe generate")
        return make_requests(options, asked_for(options, None), read_facts(None, None), None)

    with pytest.warns(UserWarning) as said:
        (request,) = requests("--scale", "auto")
    notes = " ".join(str(note.message) for note in said)
    assert "its first camera is taken to be level" in notes and "(--scale auto)" in notes
    assert "a calibration of 640 x 480 for images of 112 x 64: 114 of its 480 rows" in notes
    assert abs(float(request.camera.angles.roll[0])) < 1e-6
    assert request.camera.path_length() == pytest.approx(1)
    assert request.camera.lens.settings == {"width": 640, "height": 366}
    with pytest.warns(UserWarning, match="it is squeezed by"):
        (request,) = requests("--up", "first", "--fit", "squeeze")
    assert request.camera.lens.settings == {"width": 640, "height": 480}
    with pytest.raises(ValueError, match="--list already says what the camera is"):
        requests("--lens", "fisheye")


@pytest.mark.slow
def test_a_check_compares_with_the_video_without_the_camera(run, tmp_path):
    code, printed, _ = run(PROMPT, "--move", "pan-left", *QUICK, "--check", "-o", "a.mp4")
    assert code in (0, 3, 4) and {"a.without-camera.mp4", "a.check.png"} <= {path.name for path in tmp_path.iterdir()}
    assert "the camera has an effect" in printed and "turn: " in printed


def test_an_estimator_that_a_check_lacks_is_missed_before_a_weight_is_loaded(run, no_weights, monkeypatch):
    def lacking(*_):
        raise ValueError("needs pycolmap")

    monkeypatch.setattr("ucpe.cli.check.find_pose_estimator", lacking)
    code, _, said = run(PROMPT, *QUICK, "--check")
    assert code != 0 and said.strip().endswith("needs pycolmap")


def test_ctrl_c_says_how_far_it_came_and_leaves_nothing_half_made(run, tmp_path, monkeypatch):
    checkout(tmp_path)

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ucpe.video.write_video", stop)
    code, _, complaints = run("--list", "demo/two.json", *QUICK, "-o", "videos")
    assert code == 130 and "stopped with 0 of 2 videos made; the same command makes the others" in complaints
    assert not (tmp_path / "videos").exists()


def test_the_card_lists_the_words():
    facts = read_facts(None, None)
    card = (desk.WEIGHTS / "README.md").read_text()
    assert facts.vocabulary is not None
    listed = set(re.findall(r"[a-z]+", card[card.index("## Words") :]))
    assert set(facts.vocabulary.words) <= listed
    assert facts.defaults.limits == generation_defaults(RECIPES["desk-model"]).limits
