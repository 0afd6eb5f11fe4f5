"""The shot as data: every edit, undo, and what is kept on disk. No browser here."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from ucpe.lenses import UCM, KannalaBrandt, Pinhole, lens_from_dict
from ucpe.studio import edits
from ucpe.studio.drawing import path_svg
from ucpe.studio.shot import Key, Shot
from ucpe.studio.store import Document, Store
from ucpe.studio.window import MOVES, UPLOAD, Window
from ucpe.trajectories import NAMED_MOVES, Trajectory
from ucpe.trajectories.rotations import rotation_angle
from ucpe.video import write_video

LENS = {"model": "ucm", "xfov": 120.0, "xi": 0.8}


@pytest.fixture
def shot() -> Shot:
    keys = (
        Key(0.0, LENS),
        Key(6.0, {**LENS, "xfov": 100.0}, (0.2, -0.1, 0.5), 10.0, 30.0, 5.0, "ease_in"),
        Key(16.0, LENS, (0.5, 0.0, 1.0), -5.0, 80.0),
    )
    return Shot(keys=keys)


def far_apart(one: Trajectory, other: Trajectory) -> float:
    lenses = [torch.stack(list(path.lens_per_frame().parameters.values())) for path in (one, other)]
    return max((one.c2w - other.c2w).abs().max().item(), (lenses[0] - lenses[1]).abs().max().item())


def test_a_shot_passes_through_its_keyframes(shot):
    assert len(shot.camera) == 17 and shot.camera.fps == 8
    for key in shot.keys:
        frame = int(key.frame)
        assert np.allclose(shot.camera.positions[frame], key.position)
        assert np.allclose([float(angle) for angle in shot.camera[frame].angles], [key.pitch, key.yaw, key.roll])
        assert shot.camera.lens_at(frame).to_dict() == pytest.approx(key.lens)


def test_a_shot_becomes_json_and_comes_back(shot):
    again = Shot.from_dict(json.loads(json.dumps(shot.to_dict())))
    assert again == shot and far_apart(again.camera, shot.camera) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frames": 0}, "frames must be a whole number"),
        ({"frames": 3}, "within frames 0 to 2"),
        ({"height": 271}, "must be even"),
        ({"fps": float("nan")}, "fps must be above 0"),
        ({"keys": ()}, "at least one keyframe"),
        ({"keys": (Key(0.0, {"model": "ucm", "xfov": 500.0, "xi": 0.0}),)}, "xfov must be"),
        ({"keys": (Key(0.0, LENS, yaw=float("inf")),)}, "yaw of keyframe 0 must be a finite number"),
        ({"prompt": "a" * 5000}, "at most 4000 characters"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_what_makes_no_camera_is_refused(shot, change, message):
    with pytest.raises(ValueError, match=message):
        replace(shot, **change)


@pytest.mark.parametrize("content", [None, [], {}, {"format": "ucpe-shot", "version": 1}, {"format": "ucpe-shot"}])
def test_what_is_no_shot_is_refused(content):
    with pytest.raises(ValueError, match="shot"):
        Shot.from_dict(content)


def test_a_view_that_is_put_back_changes_nothing(shot):
    for frame in range(shot.frames):
        there = edits.put_key(shot, edits.view_at(shot, frame))
        assert torch.allclose(there.camera.c2w[frame], shot.camera.c2w[frame], atol=1e-12)
        assert len(there.keys) == len(shot.keys) + (frame not in (0, 6, 16))


def test_turning_and_walking_follow_the_heading(shot):
    key = replace(shot.keys[0], yaw=90.0)
    assert np.allclose(edits.walked(key, forward=2.0).position, (2, 0, 0))
    assert np.allclose(edits.walked(key, right=1.0, up=0.5).position, (0, -0.5, -1))
    assert edits.turned(key, pitch=200).pitch == 90 and edits.turned(key, roll=190).roll == -170
    turn = edits.turned(key, yaw=12.5)
    assert rotation_angle(key.pose()[:3, :3].T @ turn.pose()[:3, :3]).item() == pytest.approx(12.5)


@pytest.mark.parametrize("lens", [LENS, {"model": "pinhole", "xfov": 60.0}])
def test_zooming_in_and_out_again_is_the_same_lens(lens):
    key = Key(0.0, lens)
    narrow = edits.zoomed(key, 2.0)
    assert narrow.lens["xfov"] < lens["xfov"]
    assert edits.zoomed(narrow, 0.5).lens == pytest.approx(lens)


def test_a_keyframe_is_retimed_between_its_neighbours(shot):
    assert edits.retime_key(shot, 1, 9.4).keys[1].frame == 9
    assert edits.retime_key(shot, 1, -3).keys[1].frame == 1
    assert edits.retime_key(shot, 1, 99).keys[1].frame == 15
    assert edits.retime_key(shot, 2, 99).keys[2].frame == 16


def test_all_but_the_last_keyframe_can_be_deleted(shot):
    one = edits.delete_key(edits.delete_key(shot, 0), 0)
    assert [key.frame for key in one.keys] == [16]
    assert (one.camera.c2w == one.camera.c2w[0]).all()
    with pytest.raises(ValueError, match="at least one keyframe"):
        edits.delete_key(one, 0)


def test_a_lens_goes_on_the_path_or_on_one_keyframe(shot):
    everywhere = edits.set_lens(shot, KannalaBrandt(xfov=150.0, k1=0.01))
    assert {key.lens["model"] for key in everywhere.keys} == {"kannala_brandt"}
    one = edits.set_lens(shot, UCM(xfov=90.0, xi=0.1), index=1)
    assert [key.lens["xfov"] for key in one.keys] == [120, 90, 120]
    assert {key.lens["model"] for key in edits.set_lens(shot, Pinhole(xfov=80.0), index=1).keys} == {"pinhole"}
    assert [key.lens["xi"] for key in edits.set_lens_parameter(shot, "xi", 0.3).keys] == [0.3] * 3
    assert [key.lens["xi"] for key in edits.set_lens_parameter(shot, "xi", 0.3, 2).keys] == [0.8, 0.8, 0.3]
    with pytest.raises(ValueError, match="xi must be"):
        edits.set_lens_parameter(shot, "xi", -1)


@pytest.mark.parametrize("move", NAMED_MOVES)
@pytest.mark.parametrize("frame", [0, 5])
def test_every_move_can_be_inserted_and_starts_where_the_camera_is(shot, move, frame):
    start = edits.view_at(shot, frame)
    moved = edits.insert_move(shot, move, frame)
    assert torch.allclose(moved.camera.c2w[frame], shot.camera.c2w[frame], atol=1e-6)
    lens = lens_from_dict(start.lens)
    angles = {"pitch": start.pitch, "yaw": start.yaw, "roll": start.roll}
    wanted = Trajectory.move(move, lens, frames=17 - frame, fps=8.0, **angles)
    offset = torch.tensor(start.position)
    assert (moved.camera.positions[frame:] - wanted.positions - offset).norm(dim=-1).max() < 0.005
    turn = rotation_angle(moved.camera.rotations[frame:].mT @ wanted.rotations)
    assert turn.max() < 0.5


def test_a_path_opened_from_a_file_is_that_path(shot, tmp_path):
    shot.camera.save(tmp_path / "path.json")
    camera = Trajectory.load(tmp_path / "path.json")
    opened = edits.open_path(Shot(), camera)
    assert far_apart(opened.camera, shot.camera) < 1e-9
    rough = edits.open_path(Shot(), Trajectory.handheld(UCM(xfov=100.0), frames=49, fps=24.0))
    assert rough.frames == 49 and rough.fps == 24 and len(rough.keys) > 40
    few = edits.simplify(rough, 0.02)
    assert len(few.keys) < 30
    with pytest.raises(ValueError, match="no fewer keyframes stay within"):
        edits.simplify(few, 0.01)


def test_whole_path_edits(shot):
    double = edits.scale_path(shot, 2.0)
    assert torch.allclose(double.camera.positions, 2 * shot.camera.positions, atol=1e-12)
    turned = edits.turn_path(shot, 90.0).camera
    assert torch.allclose(turned.angles.yaw, shot.camera.angles.yaw + 90)
    assert torch.allclose(turned.positions[:, 0], shot.camera.positions[:, 2])
    assert (edits.level_path(shot).camera.angles.roll.abs() < 1e-9).all()
    back = edits.reverse_path(shot)
    assert torch.allclose(back.camera.c2w.flip(0), shot.camera.c2w, atol=1e-9)
    assert edits.reverse_path(back) == shot
    with pytest.raises(ValueError, match="scale must be"):
        edits.scale_path(shot, 0.0)


def test_another_length_keeps_each_keyframes_share_of_the_time(shot):
    longer = edits.set_length(shot, 33, 16.0)
    assert [key.frame for key in longer.keys] == [0, 12, 32] and longer.camera.duration == 2.0
    with pytest.raises(ValueError, match="3 keyframes do not fit 2 frames"):
        edits.set_length(shot, 2, 8.0)


def test_everything_can_be_undone_and_done_again(tmp_path, shot):
    document = Document(Store(tmp_path), "0", shot)
    steps = [
        edits.level_path,
        lambda s: edits.delete_key(s, 1),
        edits.reverse_path,
        lambda s: replace(s, prompt="a house"),
        lambda s: edits.insert_move(s, "orbit"),
    ]
    states = [shot]
    for step in steps:
        document.edit(step(document.shot))
        states.append(document.shot)
    for state in reversed(states[:-1]):
        document.undo()
        assert document.shot == state
    document.undo()
    assert document.shot == shot
    for state in states[1:]:
        document.redo()
        assert document.shot == state
    document.undo()
    document.edit(edits.scale_path(document.shot, 2))
    document.redo()
    assert document.shot.keys[0] == states[-2].keys[0] and not document.undone


def test_a_drag_is_one_step_and_the_next_drag_another(tmp_path, shot):
    document = Document(Store(tmp_path), "0", shot)
    for xfov in (110, 105, 101):
        document.edit(edits.set_lens_parameter(document.shot, "xfov", xfov), tag="xfov")
    document.settle()
    document.edit(edits.set_lens_parameter(document.shot, "xfov", 99), tag="xfov")
    document.undo()
    assert document.shot.keys[0].lens["xfov"] == 101
    document.undo()
    assert document.shot == shot


def test_a_store_keeps_what_changes_and_forgets_nothing(tmp_path, shot):
    store = Store(tmp_path)
    document = store.open(store.new(shot))
    document.edit(edits.level_path(document.shot))
    again = Store(tmp_path).open(document.id)
    assert again.shot == document.shot
    saved = Trajectory.load(store.path_file(document.id))
    assert far_apart(saved, document.shot.camera) == 0


def test_a_camera_off_the_path_is_seen_from_outside(tmp_path, shot):
    store = Store(tmp_path)
    window = Window(store, store.open(store.new(shot)))
    window.go(3)
    drawn = []
    for key in "ww":
        drawn.append(path_svg(window.shot, window.camera(), window.frame, window.selected, window.orbit, None))
        window.look(MOVES[key](window.view(), 4.0), "walk")
    on, off = (re.findall('class="([^"]+)" d="([^"]+)"', svg) for svg in drawn)
    assert on[:-1] == off[:-1] and on[-1] != off[-1] and on[-1][0] == "frustum now"


def test_a_panoramic_video_that_was_cut_is_shown_as_far_as_it_goes_and_that_is_said(tmp_path, shot):
    store = Store(tmp_path / "studio")
    window = Window(store, store.open(store.new(shot)))
    frames = np.random.default_rng(0).integers(0, 256, (40, 64, 128, 3), dtype=np.uint8)
    write_video(tmp_path / "whole.mp4", frames, 8.0)
    whole = (tmp_path / "whole.mp4").read_bytes()
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    remarks = [window.try_scene(UPLOAD + store.keep(tmp_path / name, name).name) for name in ("whole.mp4", "cut.mp4")]
    assert remarks[0] == [] and re.fullmatch(r"its header promises 40 frames, but only \d+ can be decoded", *remarks[1])


def test_a_window_gets_the_latest_shot_that_no_other_window_shows(tmp_path, shot):
    store = Store(tmp_path)
    first = store.latest_unwatched()
    assert store.latest_unwatched() == first
    store.open(first).windows.add("one")
    second = store.latest_unwatched()
    assert second != first
    store.open(second).windows.add("other")
    store.open(first).windows.clear()
    assert store.latest_unwatched() == first


def test_other_shots_are_offered_by_their_prompt_and_broken_ones_are_not(tmp_path, shot):
    store = Store(tmp_path)
    one, other = store.new(shot), store.new(replace(shot, prompt="a house by the sea"))
    (store.shots / "00000000.json").write_text("{")
    assert list(store.describe_others(one)) == [other]
    assert store.describe_others(one)[other].endswith(" · a house by the sea")


@pytest.mark.parametrize("id", ["", "../../etc", "0" * 9, "zzzzzzzz", "00000000"])
def test_ids_that_are_none_open_nothing(tmp_path, id):
    with pytest.raises(ValueError, match="no shot"):
        Store(tmp_path).open(id)


def test_a_broken_shot_is_named(tmp_path):
    store = Store(tmp_path)
    (store.shots / "00000000.json").write_text('{"format": "ucpe-shot", "ver')
    with pytest.raises(ValueError, match=r"00000000\.json"):
        store.open("00000000")


def test_of_an_uploaded_files_name_only_a_known_suffix_is_kept(tmp_path):
    store = Store(tmp_path / "studio")
    (tmp_path / "file").write_bytes(b"{}")
    for name, ending in (("../../evil name.ZIP", ".zip"), ("scan.r3d", ".r3d"), ("run.sh", ".txt"), ("none", ".txt")):
        kept = store.keep(tmp_path / "file", name)
        assert kept.parent == store.uploads and kept.suffix == ending and kept.stem.isalnum()
        assert store.upload(kept.name) == kept
    for name in ("../shots/00000000.json", "/etc/passwd", ".json", "a" * 24 + ".json"):
        with pytest.raises(ValueError, match="choose it again"):
            store.upload(name)
