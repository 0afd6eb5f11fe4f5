"""The page in a real browser. Every wait is for the state that is checked."""

import math
import re

import numpy as np
import pytest
import torch
from PIL import Image

from ucpe.generation.requests import read_again
from ucpe.lenses import lens_from_dict
from ucpe.studio.shot import Shot
from ucpe.synthesis.scenes import open_scene
from ucpe.trajectories import Trajectory
from ucpe.video import read_frames

pytestmark = pytest.mark.slow


def seen(shot: dict, frame: int = 0) -> np.ndarray:
    """What `ucpe render` films of a shot at a frame."""
    made = Shot.from_dict(shot)
    camera, lens = made.camera, made.lens_at(frame)
    return open_scene(made.scene).picture(lens, camera.c2w[frame], frame / made.fps, made.height, made.width)


def type_number(page, label: str, value: str) -> None:
    field = page.tab.get_by_label(label, exact=True).locator("visible=true")
    field.fill(value)
    field.press("Enter")


def test_the_picture_is_exactly_what_is_rendered_and_follows_the_lens(page):
    page.wait_for_picture(seen(page.shot()))
    type_number(page, "xfov, number", "140")
    page.wait_for_shot(lambda shot: shot["keys"][0]["lens"]["xfov"] == 140)
    type_number(page, "xfov, number", "200")
    page.tab.get_by_role("alert").filter(has_text="xfov must be below 180").wait_for()
    page.tab.get_by_role("slider", name="xfov").press("ArrowLeft")
    shot = page.wait_for_shot(lambda shot: shot["keys"][0]["lens"]["xfov"] == 139.5)
    page.wait_for_picture(seen(shot))


def test_dragging_turns_the_camera_by_the_angle_between_the_rays(page):
    page.drag(".finder", (0.5, 0.5), (0.75, 0.5))
    shot = page.wait_for_shot(lambda shot: shot["keys"][0]["yaw"] != 0)
    lens = lens_from_dict(shot["keys"][0]["lens"])
    rays = lens.unproject(torch.tensor([[240.0, 135.0], [360.0, 135.0]]).double(), 270, 480).directions
    angle = math.degrees(math.acos(float(rays[0] @ rays[1])))
    shot = page.wait_for_shot(lambda shot: abs(shot["keys"][0]["yaw"] + angle) < 0.2)
    assert abs(shot["keys"][0]["pitch"]) < 0.2
    page.wait_for_picture(seen(shot))


def test_keys_move_the_camera_and_a_keyframe_is_added_undone_and_done_again(page):
    page.drag(".graphs", (0.5, 0.5), (0.99, 0.5))
    page.tab.get_by_text("frame 16 of 16").wait_for()
    finder = page.tab.locator(".finder")
    finder.focus()
    for key in ("w", "w", "e", "ArrowRight"):
        finder.press(key)
    page.tab.get_by_text("off the path").filter(has_text="yaw 3.0°").wait_for()
    assert len(page.shot()["keys"]) == 1
    finder.press("k")
    shot = page.wait_for_shot(lambda shot: len(shot["keys"]) == 2)
    assert shot["keys"][1]["frame"] == 16 and shot["keys"][1]["yaw"] == 3
    assert np.allclose(shot["keys"][1]["position"], (0, -0.05, 0.1))
    page.wait_for_picture(seen(shot, 16))
    finder.press("Control+z")
    page.wait_for_shot(lambda shot: len(shot["keys"]) == 1)
    finder.press("Control+y")
    assert page.wait_for_shot(lambda shot: len(shot["keys"]) == 2) == shot


def test_a_saved_path_opens_as_the_same_path_and_a_broken_one_is_a_notice(page, tmp_path):
    page.tab.get_by_role("tab", name="Path").click()
    page.tab.get_by_role("button", name="Insert", exact=True).click()
    shot = page.wait_for_shot(lambda shot: len(shot["keys"]) > 2)
    page.tab.get_by_role("tab", name="Files").click()
    with page.tab.expect_download() as download:
        page.tab.get_by_role("button", name="Save path").click()
    download.value.save_as(tmp_path / "path.json")
    saved = Trajectory.load(tmp_path / "path.json")
    assert (saved.c2w - Shot.from_dict(shot).camera.c2w).abs().max() < 1e-12
    page.tab.get_by_role("button", name="Undo (Ctrl+Z)").click()
    page.wait_for_shot(lambda shot: len(shot["keys"]) == 1)
    opener = page.tab.get_by_label("Open a path (a folder as .zip)").locator("visible=true").locator("input[type=file]")
    opener.set_input_files(tmp_path / "path.json")
    opened = page.wait_for_shot(lambda shot: len(shot["keys"]) > 2)
    assert (Shot.from_dict(opened).camera.c2w - saved.c2w).abs().max() < 1e-9
    (tmp_path / "broken.json").write_text('{"format": "ucpe-trajectory"')
    opener.set_input_files(tmp_path / "broken.json")
    page.tab.locator(".q-notification").filter(has_text="JSON").wait_for()
    assert page.shot() == opened


CHAIN = "".join(
    f"cam{number}:\n  camera_model: pinhole\n  intrinsics: [{focal}, {focal}, 320, 240]\n"
    "  distortion_model: none\n  distortion_coeffs: []\n  resolution: [640, 480]\n"
    for number, focal in enumerate((300, 500))
)


def upload(page, label: str, path) -> None:
    page.tab.get_by_label(label).locator("visible=true").locator("input[type=file]").set_input_files(path)


def test_of_a_stereo_calibration_one_camera_is_chosen_and_a_panorama_is_shown_exactly(studio, page, tmp_path):
    (tmp_path / "camchain.yaml").write_text(CHAIN)
    upload(page, "Open a calibration", tmp_path / "camchain.yaml")
    page.tab.get_by_label("Camera of that file").click()
    page.tab.get_by_role("option", name="cam1").click()
    page.wait_for_shot(lambda shot: shot["keys"][0]["lens"].get("fx") == 500)
    page.tab.get_by_role("tab", name="Scene").click()
    panorama = np.random.default_rng(0).integers(0, 255, (32, 64, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    Image.fromarray(panorama).save(tmp_path / "round.png")
    upload(page, "Open a panorama (2:1 photo or video)", tmp_path / "round.png")
    shot = page.wait_for_shot(lambda shot: shot["scene"].startswith("upload:"))
    file = studio.folder / "uploads" / shot["scene"].removeprefix("upload:")
    page.wait_for_picture(seen({**shot, "scene": str(file)}))


def test_two_windows_on_one_shot_follow_each_other_and_the_wheel_zooms(page, open_page, wait):
    other = open_page(f"/shot/{page.id}")
    page.tab.locator(".finder").hover()
    page.tab.mouse.wheel(0, -100)
    shot = page.wait_for_shot(lambda shot: shot["keys"][0]["lens"]["xfov"] < 99)
    for window in (page, other):
        window.wait_for_picture(seen(shot))
        number = window.tab.get_by_label("xfov, number", exact=True).locator("visible=true")
        wait(
            lambda number=number: abs(float(number.input_value()) - shot["keys"][0]["lens"]["xfov"]) < 1e-3,
            "the new number",
        )


def test_a_reload_and_a_killed_server_bring_the_shot_back_and_windows_do_not_disturb_each_other(
    studio, open_page, page
):
    other = open_page()
    page.drag(".finder", (0.5, 0.5), (0.3, 0.6))
    shot = page.wait_for_shot(lambda shot: shot["keys"][0]["yaw"] > 5)
    assert other.id != page.id and other.shot()["keys"][0]["yaw"] == 0
    assert (other.canvas() == seen(other.shot())).all()
    page.tab.reload()
    page.wait_for_picture(seen(shot))
    studio.kill()
    studio.start()
    page.open(f"/shot/{page.id}")
    page.wait_for_picture(seen(shot))
    assert page.shot() == shot


CONTROLS = {"button", "slider", "textbox", "combobox", "switch", "tab", "link", "spinbutton", "application", "Video"}
UNSAID = """() => [...document.querySelectorAll('[tabindex="0"]')]
    .filter(e => e.offsetParent && !e.role && !['A', 'BUTTON', 'INPUT', 'TEXTAREA', 'VIDEO'].includes(e.tagName))
    .map(e => e.outerHTML.slice(0, 160))"""


def nameless(page) -> list[str]:
    """Controls without a name in the accessibility tree, and elements that take the focus without being a control."""
    tree = page.context.new_cdp_session(page.tab).send("Accessibility.getFullAXTree")["nodes"]
    nodes = [node for node in tree if not node["ignored"] and node["role"]["value"] in CONTROLS]
    assert len(nodes) > 20
    return page.tab.evaluate(UNSAID) + [node["role"]["value"] for node in nodes if not node["name"]["value"].strip()]


@pytest.mark.parametrize("width", [1400, 390])
def test_everything_has_a_name_and_fits_the_window(open_page, wait, width):
    page = open_page(width=width, height=844)
    for tab in page.tab.get_by_role("tab").all():
        tab.click()
        page.tab.locator(f"[role=tab][aria-selected=true]:has-text('{tab.inner_text()}')").wait_for()
        wait(lambda: not nameless(page), "a name for everything")
        wait(lambda: page.tab.evaluate("document.documentElement.scrollWidth") <= width, "a page that fits")


def test_a_generated_video_plays_beside_what_was_commanded(studio, page):
    page.tab.get_by_role("tab", name="Generate").click()
    type_number(page, "Steps", "2")
    page.wait_for_shot(lambda shot: shot["steps"] == 2)
    page.tab.get_by_text("within what the model was trained on").wait_for()
    page.tab.get_by_role("button", name="Generate", exact=True).click()
    page.tab.locator(".compare").wait_for()
    page.tab.evaluate("document.querySelectorAll('.compare video').forEach(video => video.play())")
    playing = "[...document.querySelectorAll('.compare video')].every(v => v.readyState >= 2 && v.videoWidth == 112)"
    page.tab.wait_for_function(f"{playing} && document.querySelector('.compare video').currentTime > 0.2")
    page.tab.wait_for_function("document.querySelector('.compare .horizon').getAttribute('d').length > 20")
    video = next(path for path in (studio.folder / "results").glob("*.mp4") if "commanded" not in path.name)
    request = read_again(video.with_suffix(".json"))
    assert request.prompt == page.shot()["prompt"] and request.steps == 2
    assert len(read_frames(video)) == 17 == len(read_frames(video.with_suffix(".commanded.mp4")))

    type_number(page, "Steps", "1000")
    page.wait_for_shot(lambda shot: shot["steps"] == 1000)
    page.tab.get_by_role("button", name="Generate", exact=True).click()
    page.tab.get_by_text(re.compile("step [1-9][0-9]* of 1000")).wait_for()
    page.tab.get_by_role("button", name="Cancel").click()
    page.tab.get_by_role("button", name="Cancel").wait_for(state="detached")
    assert len(list((studio.folder / "results").glob("*.commanded.mp4"))) == 1
