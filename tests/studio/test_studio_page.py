"""The page in a real browser. Every wait is for the state that is checked."""

import math
import re

import numpy as np
import pytest
import torch
from PIL import Image

from ucpe.generation.requests import read_again
from ucpe.lenses import lens_from_dict
from ucpe.studio.drawing import ABOVE_HEIGHT, ABOVE_WIDTH, GRAPH_WIDTH, around, graph_x
from ucpe.studio.shot import Shot
from ucpe.synthesis.scenes import open_scene
from ucpe.trajectories import Trajectory
from ucpe.video import read_frames, write_video

pytestmark = pytest.mark.slow


def seen(shot: dict, frame: int = 0) -> np.ndarray:
    """What `ucpe render` films of a shot at a frame."""
    made = Shot.from_dict(shot)
    camera, lens = made.camera, made.camera.lens_at(frame)
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
    page.tab.get_by_role("alert").filter(has_text="xfov must be below 180 degrees").wait_for()
    page.wait_for_slider("xfov", 140)
    page.tab.get_by_role("slider", name="xfov").press("ArrowLeft")
    shot = page.wait_for_shot(lambda shot: shot["keys"][0]["lens"]["xfov"] == 139.5)
    page.wait_for_picture(seen(shot))


LATE = "(() => { const now = setTimeout; window.setTimeout = (act, ms, ...rest) => now(act, ms || 300, ...rest); })()"
"""Makes the browser do late what it would do soon, as a busy machine does."""

AFTER_THAT = "new Promise(done => setTimeout(done))"


def test_keys_pressed_right_after_typing_all_count_and_leaving_a_field_changes_nothing(page, tmp_path):
    def xfov(value: float) -> None:
        page.wait_for_shot(lambda shot: shot["keys"][0]["lens"]["xfov"] == value, f"xfov of {value}")
        page.wait_for_number("xfov, number", value)
        page.wait_for_slider("xfov", value)

    slider = page.tab.get_by_role("slider", name="xfov")
    type_number(page, "xfov, number", "140")
    xfov(140)
    page.tab.evaluate(LATE)
    slider.focus()
    page.tab.keyboard.down("ArrowLeft")
    page.tab.evaluate(AFTER_THAT)  # only now does the page hear that the field was left
    page.tab.keyboard.up("ArrowLeft")
    xfov(139.5)
    for _ in range(9):
        slider.press("ArrowLeft")
    xfov(135)
    (tmp_path / "camchain.yaml").write_text(CHAIN.partition("cam1")[0].replace("300", "300.123456789"))
    upload(page, "Open a calibration", tmp_path / "camchain.yaml")
    shot = page.wait_for_shot(lambda shot: shot["keys"][0]["lens"].get("fx") == 300.123456789)
    page.tab.get_by_label("fx, number", exact=True).focus()
    page.tab.keyboard.press("Tab")
    page.tab.evaluate(AFTER_THAT)
    type_number(page, "fy, number", "310")
    lens = page.wait_for_shot(lambda shot: shot["keys"][0]["lens"]["fy"] == 310)["keys"][0]["lens"]
    assert lens == {**shot["keys"][0]["lens"], "fy": 310.0}


def test_what_is_drawn_over_the_picture_is_switched_on_and_off(page):
    def drawn(name: str, there: bool) -> None:
        found = f"(document.querySelector('.finder path.{name}').getAttribute('d') || '').length > 0"
        page.tab.wait_for_function(f"({found}) === {str(there).lower()}")

    for name, label, before in (
        ("horizon", "Horizon", True),
        ("latitudes", "Latitudes", True),
        ("arrows", "Up arrows", False),
    ):
        drawn(name, before)
        page.tab.get_by_role("switch", name=label).click()
        drawn(name, not before)


HOLD = """(() => {
    const [decode, held] = [createImageBitmap, window.held = []];
    window.createImageBitmap = (...all) => new Promise((done) => held.push(() => done(decode(...all))));
    window.goOn = () => { window.createImageBitmap = decode; held.forEach((one) => one()); };
})()"""
"""Makes the browser wait before it shows a picture, until `goOn` is called."""


def test_dragging_turns_the_camera_by_the_angle_between_the_rays(page):
    page.tab.evaluate(HOLD)
    box = page.tab.locator(".finder").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.tab.mouse.move(x, y)
    page.tab.mouse.down()
    page.tab.mouse.move(x + box["width"] / 8, y)
    page.tab.wait_for_function("held.length > 0")
    page.tab.mouse.move(x + box["width"] / 4, y)
    page.tab.mouse.up()
    page.tab.evaluate("goOn()")
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


def test_buttons_move_the_camera_and_lead_back_to_the_path(page):
    press(page, "Move")
    for name in ("Walk forward (W)", "Turn right (arrow key)"):
        press(page, name)
    shot = page.wait_for_shot(lambda shot: shot["keys"][0]["yaw"] == 3)
    assert np.allclose(shot["keys"][0]["position"], (0, 0, 0.05))
    page.drag(".graphs", (0.5, 0.5), (0.99, 0.5))
    page.tab.get_by_text("frame 16 of 16").wait_for()
    press(page, "Roll left (R)")
    page.tab.get_by_text("off the path").filter(has_text="roll -3.0°").wait_for()
    press(page, "Back to the path")
    page.tab.get_by_text("on the path · ").filter(has_text="roll 0.0°").wait_for()
    page.wait_for_picture(seen(shot, 16))


def test_a_prompt_that_describes_the_world_follows_it_until_it_says_something_else(page):
    def caption(shot: dict) -> str:
        return open_scene(shot["scene"]).world.caption

    assert page.shot()["prompt"] == caption(page.shot())
    page.tab.get_by_role("tab", name="Scene").click()
    press(page, "Another")
    shot = page.wait_for_shot(lambda shot: shot["scene"] == "world:14")
    assert shot["prompt"] == caption(shot)
    page.tab.get_by_role("tab", name="Generate").click()
    page.tab.get_by_label("Prompt", exact=True).fill("a house")
    page.tab.get_by_label("Prompt", exact=True).blur()
    page.wait_for_shot(lambda shot: shot["prompt"] == "a house")
    page.tab.get_by_role("tab", name="Scene").click()
    press(page, "Another")
    shot = page.wait_for_shot(lambda shot: shot["scene"] == "world:15")
    assert shot["prompt"] == "a house"
    page.tab.get_by_role("tab", name="Generate").click()
    press(page, "Describe the scene")
    page.wait_for_shot(lambda now: now["prompt"] == caption(shot))


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


def choose(page, label: str, option: str) -> None:
    page.tab.get_by_label(label, exact=True).locator("visible=true").click()
    page.tab.get_by_role("option", name=option, exact=True).click()


def press(page, name: str) -> None:
    page.tab.get_by_role("button", name=name, exact=True).click()


FRAME = "Number(document.querySelector('.clock').textContent.match(/frame (\\d+) of/)[1])"
"""The number of the frame that is shown."""


def test_playing_runs_through_the_path_loops_and_stops_at_the_end(page):
    page.tab.get_by_role("tab", name="Path").click()
    press(page, "Insert")
    shot = page.wait_for_shot(lambda shot: len(shot["keys"]) > 2)
    page.wait_for_picture(seen(shot))
    press(page, "Play")
    for frame in (3, 12, 3):  # a slow machine skips some
        page.tab.wait_for_function(f"{FRAME} >= {frame}")
        page.tab.wait_for_function(f"{FRAME} < 12")
    page.tab.get_by_role("switch", name="Loop").click()
    page.tab.get_by_role("button", name="Play", exact=True).wait_for()
    page.tab.get_by_text("frame 16 of 16").wait_for()
    page.wait_for_picture(seen(shot, 16))
    page.tab.get_by_role("switch", name="Loop").click()
    press(page, "Play")
    page.tab.get_by_text(re.compile("frame [1-9] of 16")).wait_for()
    press(page, "Stop")
    page.tab.get_by_role("button", name="Play", exact=True).wait_for()
    page.wait_for_picture(seen(shot, page.tab.evaluate(FRAME)))


def test_a_keyframe_is_dragged_in_the_view_from_outside(page):
    orbit, size = around(Shot.from_dict(page.shot())), np.array([ABOVE_WIDTH, ABOVE_HEIGHT])
    start = orbit.project(np.zeros((1, 3)))[0][0] / size
    end = np.array([0.7, 0.65])
    page.drag(".outside", start, end)
    x, y, z = orbit.on_level(*(end * size), 0.0)
    assert abs(x) > 0.3

    def placed(shot: dict, wanted: tuple[float, float, float]) -> bool:
        return bool(np.allclose(shot["keys"][0]["position"], wanted, atol=0.02))

    page.wait_for_shot(lambda shot: placed(shot, (x, y, z)))
    page.tab.keyboard.down("Shift")
    page.drag(".outside", end, end - [0, 0.2])
    page.tab.keyboard.up("Shift")
    shot = page.wait_for_shot(lambda shot: placed(shot, (x, -0.2 * orbit.distance, z)))
    page.wait_for_picture(seen(shot))
    press(page, "Undo (Ctrl+Z)")
    page.wait_for_shot(lambda shot: placed(shot, (x, y, z)))
    press(page, "Undo (Ctrl+Z)")
    page.wait_for_picture(seen(page.wait_for_shot(lambda shot: placed(shot, (0, 0, 0)))))


def test_everything_is_undone_and_done_again_in_one_walk(page):
    finder = page.tab.locator(".finder")

    def add_a_keyframe() -> None:
        page.drag(".graphs", (0.5, 0.5), (0.99, 0.5))
        page.tab.get_by_text("frame 16 of 16").wait_for()
        for key in ("w", "d", "r", "ArrowUp"):
            finder.press(key)
        page.tab.get_by_text("off the path").filter(has_text="pitch 3.0°").wait_for()
        finder.press("k")

    def choose_the_first() -> None:
        button = page.tab.get_by_role("button", name="Keyframe 1 at 0.00 seconds")
        button.press("Enter")
        page.tab.get_by_text("keyframe 1 of 2").wait_for()
        page.tab.locator("[aria-current=true]:focus").and_(button).wait_for()

    def write_a_prompt() -> None:
        page.tab.get_by_role("tab", name="Generate").click()
        page.tab.get_by_label("Prompt", exact=True).fill("a house by the sea")
        page.tab.get_by_label("Prompt", exact=True).blur()

    steps = {
        "lens": lambda: choose(page, "Model or family", "equidistant"),
        "slider": lambda: (
            page.wait_for_number("xfov, number", page.shot()["keys"][0]["lens"]["xfov"]),
            page.tab.get_by_role("slider", name="xfov").press("ArrowLeft"),
        ),
        "add": add_a_keyframe,
        "look": lambda: page.drag(".finder", (0.5, 0.5), (0.4, 0.6)),
        "retime": lambda: page.drag(".graphs", (708 / 800, 10 / 232), (0.6, 10 / 232)),
        "easing": lambda: (
            page.tab.get_by_role("tab", name="Path").click(),
            choose_the_first(),
            choose(page, "Easing to the next", "linear"),
        ),
        "number": lambda: type_number(page, "x", "0.25"),
        "preset": lambda: press(page, "Insert"),
        "scale": lambda: press(page, "Scale"),
        "turn": lambda: press(page, "Turn"),
        "roll": lambda: type_number(page, "roll", "12"),
        "level": lambda: press(page, "Level"),
        "reverse": lambda: press(page, "Reverse"),
        "delete": lambda: press(page, "Delete keyframe"),
        "prompt": write_a_prompt,
    }
    shots = [page.shot()]
    for name, step in steps.items():
        step()
        shots.append(page.wait_for_shot(lambda shot: shot != shots[-1], name))
    for name, shot in zip(reversed(steps), reversed(shots[:-1])):
        press(page, "Undo (Ctrl+Z)")
        page.wait_for_shot(lambda now, shot=shot: now == shot, f"undo of {name}")
    page.tab.get_by_role("button", name="Undo (Ctrl+Z)", disabled=True).wait_for()
    for name, shot in zip(steps, shots[1:]):
        press(page, "Redo (Ctrl+Y)")
        page.wait_for_shot(lambda now, shot=shot: now == shot, f"redo of {name}")
    page.tab.get_by_role("button", name="Redo (Ctrl+Y)", disabled=True).wait_for()
    assert page.tab.get_by_label("Prompt", exact=True).input_value() == "a house by the sea"


CHAIN = "".join(
    f"cam{number}:\n  camera_model: pinhole\n  intrinsics: [{focal}, {focal}, 320, 240]\n"
    "  distortion_model: none\n  distortion_coeffs: []\n  resolution: [640, 480]\n"
    for number, focal in enumerate((300, 500))
)


def upload(page, label: str, path) -> None:
    page.tab.get_by_label(label).locator("visible=true").locator("input[type=file]").set_input_files(path)


def test_of_a_stereo_calibration_one_camera_is_chosen(page, tmp_path):
    (tmp_path / "camchain.yaml").write_text(CHAIN)
    upload(page, "Open a calibration", tmp_path / "camchain.yaml")
    page.tab.get_by_label("Camera of that file").click()
    page.tab.get_by_role("option", name="cam1").click()
    page.wait_for_shot(lambda shot: shot["keys"][0]["lens"].get("fx") == 500)


def test_a_panoramic_photo_is_seen_turned_by_a_drag_and_undone(studio, page, tmp_path):
    page.tab.get_by_role("tab", name="Scene").click()
    across, down = np.meshgrid(np.linspace(0, 2 * np.pi, 2048), np.linspace(0, np.pi, 1024))
    waves = np.stack([np.sin(3 * across), np.cos(5 * down), np.sin(across + 4 * down)], -1)
    Image.fromarray((127 + 120 * waves).astype(np.uint8)).save(tmp_path / "round.jpg", quality=95)
    before = page.shot()
    upload(page, "Open a panorama (2:1 photo or video)", tmp_path / "round.jpg")
    shot = page.wait_for_shot(lambda shot: shot["scene"].startswith("upload:"))
    scene = {"scene": str(studio.folder / "uploads" / shot["scene"].removeprefix("upload:"))}
    page.wait_for_picture(seen({**shot, **scene}))
    page.tab.get_by_text("not how it travels").wait_for()
    page.tab.get_by_label("World number").press("Tab")
    page.drag(".finder", (0.5, 0.5), (0.3, 0.6))
    page.wait_for_picture(seen({**page.wait_for_shot(lambda shot: shot["keys"][0]["yaw"] > 5), **scene}))
    for _ in range(2):
        press(page, "Undo (Ctrl+Z)")
    page.wait_for_picture(seen(page.wait_for_shot(lambda shot: shot == before)))


def test_a_panoramic_video_runs_with_the_path_and_a_mark_dragged_beyond_the_ends_stays_on_it(studio, page, tmp_path):
    across, down = np.meshgrid(np.linspace(0, 2 * np.pi, 512), np.linspace(0, np.pi, 256))
    green, blue = np.cos(5 * down), np.sin(down) * np.sin(across + 4 * down)
    waves = [np.stack([np.sin(down) * np.sin(across + n / 5), green, blue], -1) for n in range(17)]
    write_video(tmp_path / "round.mp4", (127 + 120 * np.stack(waves)).astype(np.uint8), 8.0)
    page.tab.get_by_role("tab", name="Scene").click()
    upload(page, "Open a panorama (2:1 photo or video)", tmp_path / "round.mp4")
    shot = page.wait_for_shot(lambda shot: shot["scene"].startswith("upload:"))
    scene = {"scene": str(studio.folder / "uploads" / shot["scene"].removeprefix("upload:"))}

    def at(frame: float) -> float:
        return graph_x(Shot.from_dict(shot), frame) / GRAPH_WIDTH

    def frames_of_keys(*frames: int) -> None:
        page.wait_for_shot(lambda shot: [key["frame"] for key in shot["keys"]] == [*frames], f"keyframes at {frames}")

    def shows(frame: int) -> np.ndarray:
        page.tab.get_by_text(f"frame {frame} of 16").wait_for()
        picture = seen({**page.shot(), **scene}, frame)
        page.wait_for_picture(picture)
        return picture

    first = shows(0)
    page.drag(".graphs", (at(0), 0.5), (at(12), 0.5))
    assert np.abs(shows(12).astype(int) - first).mean() > 10
    press(page, "Keyframe here")
    frames_of_keys(0, 12)
    page.drag(".graphs", (at(12), 10 / 232), (1.2, -0.5))
    frames_of_keys(0, 16)
    shows(16)
    page.drag(".graphs", (at(16), 10 / 232), (-0.02, 10 / 232))
    frames_of_keys(0, 1)
    shows(1)
    page.drag(".graphs", (at(0), 10 / 232), (-0.02, 10 / 232))
    assert (shows(0) == first).all()
    frames_of_keys(0, 1)
    press(page, "Undo (Ctrl+Z)")
    frames_of_keys(0, 16)


def test_two_windows_on_one_shot_follow_each_other_and_the_wheel_zooms(page, open_page):
    other = open_page(f"/shot/{page.id}")
    page.tab.locator(".finder").hover()
    page.tab.mouse.wheel(0, -100)
    shot = page.wait_for_shot(lambda shot: shot["keys"][0]["lens"]["xfov"] < 99)
    for window in (page, other):
        window.wait_for_picture(seen(shot))
        window.wait_for_number("xfov, number", shot["keys"][0]["lens"]["xfov"])


def test_a_reload_and_a_killed_server_bring_the_shot_back_and_windows_do_not_disturb_each_other(
    studio, open_page, page
):
    other = open_page()
    page.drag(".finder", (0.5, 0.5), (0.3, 0.6))
    shot = page.wait_for_shot(lambda shot: shot["keys"][0]["yaw"] > 5)
    assert other.id != page.id and other.shot()["keys"][0]["yaw"] == 0
    assert (other.canvas() == seen(other.shot())).all()
    page.tab.reload()
    page.wait_for_still()
    page.wait_for_picture(seen(shot))
    page.tab.evaluate("window.before = true")
    studio.kill()
    page.tab.get_by_text("Connection lost").wait_for()
    studio.start()
    page.tab.wait_for_function("!window.before")
    page.wait_for_still()
    page.tab.get_by_text("Connection lost").wait_for(state="hidden")
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


def test_a_video_is_generated_plays_beside_what_was_commanded_and_is_made_again_or_cancelled(studio, page, wait):
    page.tab.get_by_role("tab", name="Generate").click()
    type_number(page, "Steps", "2")
    page.wait_for_shot(lambda shot: shot["steps"] == 2)
    page.tab.get_by_text("within what the model was trained on").wait_for()
    press(page, "First frame: what the lens sees now")
    page.wait_for_shot(lambda shot: shot["image"] is not None)
    page.tab.wait_for_function("document.querySelector('img.first').naturalWidth == 480")
    page.tab.get_by_role("button", name="Generate", exact=True).click()
    page.tab.locator(".compare").wait_for()
    page.tab.evaluate("document.querySelectorAll('.compare video').forEach(video => video.play())")
    playing = "[...document.querySelectorAll('.compare video')].every(v => v.readyState >= 2 && v.videoWidth == 112)"
    page.tab.wait_for_function(f"{playing} && document.querySelector('.compare video').currentTime > 0.2")
    page.tab.wait_for_function("document.querySelector('.compare .horizon').getAttribute('d').length > 20")
    video = next(path for path in (studio.folder / "results").glob("*.mp4") if "commanded" not in path.name)
    request = read_again(video.with_suffix(".json"))
    assert request.prompt == page.shot()["prompt"] and request.steps == 2
    made, commanded = read_frames(video), read_frames(video.with_suffix(".commanded.mp4"))
    assert len(made) == 17 == len(commanded)
    assert np.corrcoef(made[0].ravel(), commanded[0].ravel())[0, 1] > 0.8  # the first frame was taken

    type_number(page, "Steps", "1000")
    page.wait_for_shot(lambda shot: shot["steps"] == 1000)
    press(page, "Generate")
    page.tab.get_by_text(re.compile("step [1-9][0-9]* of 1000, [0-9]+ (s|min) left")).wait_for()
    cancel = page.tab.get_by_role("button", name="Cancel")
    cancel.focus()
    progress = page.tab.get_by_role("progressbar", name="Progress")
    before = float(progress.get_attribute("aria-valuenow"))
    wait(lambda: float(progress.get_attribute("aria-valuenow")) > before, "progress")
    page.tab.keyboard.press("Enter")
    cancel.wait_for(state="detached")
    assert len(list((studio.folder / "results").glob("*.commanded.mp4"))) == 1

    left = page.id
    press(page, "Again from here")
    page.tab.wait_for_url(lambda url: not url.endswith(("/new", left)))
    page.wait_for_still()
    again = page.shot()
    assert again["steps"] == 2 and again == {**page.shot(left), "steps": 2}
