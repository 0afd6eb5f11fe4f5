"""Who may talk to the studio, what it takes from outside, its queue, and the commands it offers. No browser here."""

import asyncio
import json
import shlex
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import ucpe.cli
from ucpe import desk
from ucpe.cli.generate import Generate
from ucpe.generation.requests import Request
from ucpe.lenses import Pinhole, fit_image
from ucpe.studio import jobs
from ucpe.studio.commands import python_lines, shell_lines
from ucpe.studio.edits import insert_move, set_lens
from ucpe.studio.guard import COOKIE, MAX_UPLOAD, Guard
from ucpe.studio.jobs import Job, Queue
from ucpe.studio.preflight import preflight
from ucpe.studio.shot import Key, Shot
from ucpe.studio.store import Store
from ucpe.studio.uploads import receive, unpack
from ucpe.synthesis.scenes import open_scene
from ucpe.trajectories import Trajectory
from ucpe.trajectories.formats import FORMATS
from ucpe.video import read_frames

WIDE = {"model": "ucm", "xfov": 100.0, "xi": 0.0}


def answer(guard: Guard, method: str = "GET", kind: str = "http", query: str = "", **headers: str) -> int:
    """The status that a request gets; 101 for a websocket that is let through."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200 if kind == "http" else 101, "headers": []})

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    guard.app = app
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": method, "headers": pairs, "query_string": query.encode()}
    asyncio.run(guard(scope, receive, send))
    return sent[0].get("status", 403)


@pytest.mark.parametrize(
    ("wanted", "request_"),
    [
        (200, {"host": "127.0.0.1:8765"}),
        (200, {"host": "localhost:8765", "origin": "http://localhost:8765", "method": "POST"}),
        (403, {"host": "evil.example:8765"}),
        (403, {"host": ""}),
        (403, {"host": "127.0.0.1:8765", "origin": "http://evil.example", "method": "POST"}),
        (403, {"host": "127.0.0.1:8765", "origin": "http://127.0.0.1:9999", "method": "POST"}),
        (403, {"host": "127.0.0.1:8765", "origin": "null", "method": "POST"}),
        (403, {"host": "127.0.0.1:8765", "origin": "http://[", "method": "POST"}),
        (403, {"host": "127.0.0.1:8765", "origin": "http://evil.example"}),
        (101, {"host": "127.0.0.1:8765", "origin": "http://127.0.0.1:8765", "kind": "websocket"}),
        (403, {"host": "127.0.0.1:8765", "origin": "http://evil.example", "kind": "websocket"}),
        (413, {"host": "127.0.0.1:8765", "content_length": str(MAX_UPLOAD + 1), "method": "POST"}),
        (413, {"host": "127.0.0.1:8765", "content_length": "-5", "method": "POST"}),
    ],
)
def test_only_this_machines_own_pages_are_answered(wanted, request_):
    assert answer(Guard(None), **request_) == wanted


def test_beyond_this_machine_a_token_is_needed():
    guard = Guard(None, hosts=(), token="secret")
    assert answer(guard, host="10.0.0.5:8765") == 401
    assert answer(guard, host="10.0.0.5:8765", query="token=wrong") == 401
    assert answer(guard, host="10.0.0.5:8765", query="token=secret") == 200
    assert answer(guard, host="10.0.0.5:8765", cookie=f"{COOKIE}=secret") == 200
    assert answer(guard, host="10.0.0.5:8765", cookie="a[]=1; =; \x01=2") == 401
    assert answer(guard, kind="websocket", host="10.0.0.5:8765", origin="http://10.0.0.5:8765") == 403


def test_a_body_that_grows_too_large_without_saying_so_is_ended(monkeypatch):
    monkeypatch.setattr("ucpe.studio.guard.MAX_UPLOAD", 10)
    received = []

    async def app(scope, receive, send):
        received.extend([(await receive())["type"] for _ in range(3)])

    async def part():
        return {"type": "http.request", "body": b"12345", "more_body": True}

    scope = {"type": "http", "method": "POST", "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(app)(scope, part, None))
    assert received == ["http.request", "http.request", "http.disconnect"]


def test_an_upload_beyond_its_limit_is_refused_before_it_is_kept(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(ValueError, match="has 3 MB, and the limit is 2 MB"):
        asyncio.run(receive(store, SimpleNamespace(name="lens.yaml", size=lambda: 3 << 20), 2 << 20))
    assert not list(store.uploads.iterdir())


def test_an_archive_that_leads_elsewhere_is_refused(tmp_path):
    for index, name in enumerate(("../outside.txt", "/tmp/outside.txt")):
        with zipfile.ZipFile(tmp_path / f"{index}.zip", "w") as archive:
            archive.writestr(name, "x")
        (tmp_path / str(index)).mkdir()
        with pytest.raises(ValueError, match="leads out of it"):
            unpack(tmp_path / f"{index}.zip", tmp_path / str(index))
    (tmp_path / "no.zip").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="not a readable zip"):
        unpack(tmp_path / "no.zip", tmp_path)


@pytest.mark.parametrize("format", ["ucpe", "realestate10k", "nerfstudio", "colmap", "tum", "kitti", "panshot", "vipe"])
def test_every_path_format_that_is_offered_is_saved_and_opened_again(tmp_path, format):
    panel = pytest.importorskip(
        "ucpe.studio.files_panel", reason="needs the page's library: pip install 'ucpe[studio]'"
    )
    assert format in panel.written(FORMATS) and not panel.written(FORMATS).keys() & {"euroc", "record3d", "polycam"}
    shot = insert_move(set_lens(Shot(frames=9), Pinhole(xfov=80.0)), "orbit")
    content, name = panel.path_download(shot, format)
    (tmp_path / "upload").write_bytes(content)
    opened = panel.load_path(Store(tmp_path / "studio").keep(tmp_path / "upload", name), None, shot)
    wanted, found = (torch.linalg.inv(camera.c2w[0]) @ camera.c2w for camera in (shot.camera, opened))
    assert (found - wanted).abs().max() < 1e-9
    assert float(opened.lens_at(0).xfov(270, 480)) == pytest.approx(80) and opened.fps == shot.fps


def test_a_calibration_is_cut_to_the_shape_of_the_pictures_aloud(tmp_path):
    needed = "needs the page's library: pip install 'ucpe[studio]'"
    lens_panel = pytest.importorskip("ucpe.studio.lens_panel", reason=needed)
    files_panel = pytest.importorskip("ucpe.studio.files_panel", reason=needed)
    lens, shot = Pinhole(fx=400.0, width=640, height=480), Shot()
    lens.save(tmp_path / "lens.yaml")
    Trajectory.static(lens, roll=88, frames=3).save(tmp_path / "path.txt", "tum")
    Trajectory.static(lens, frames=3).save(tmp_path / "path.json")
    with pytest.warns(UserWarning, match="120 of its 480 rows, half at the top and half below, are cut"):
        read = lens_panel.read_lens(tmp_path / "lens.yaml", None, shot)
    assert read.settings == {"width": 640, "height": 360} and read == fit_image(lens, shot.height, shot.width)[0]
    with pytest.warns(UserWarning, match="120 of its 480 rows"):
        assert files_panel.load_path(tmp_path / "path.json", None, shot).lens == read
    with pytest.warns(UserWarning, match="its first camera is taken to be level"):
        assert abs(float(files_panel.load_path(tmp_path / "path.txt", None, shot).angles.roll[0])) < 1e-6


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A queue whose videos take ten steps and write nothing."""

    def make(pipe, request, path, on_step):
        for step in range(10):
            if request.seed == step:
                raise ValueError("the model exploded")
            pipe.before(step)
            on_step(step + 1, 10)

    monkeypatch.setattr(jobs, "make_video", make)
    monkeypatch.setattr(Queue, "_compare", lambda self, job, path: None)
    pipe = SimpleNamespace(before=lambda step: None, defaults=SimpleNamespace(steps=10))
    return Queue(tmp_path, lambda: pipe, lambda path, request: {})


def job(seed: int = 99) -> Job:
    return Job("20260101-000000-0000", Request("a house", Shot().camera, seed=seed), Shot(), "world:1")


def test_a_queue_goes_on_after_a_failure_and_counts_steps(queue, wait):
    first, second = job(seed=3), job()
    queue.submit(first)
    queue.submit(second)
    wait(lambda: first.finished and second.finished)
    assert (first.state, first.message, first.done) == ("failed", "the model exploded", 3)
    assert (second.state, second.done, second.total) == ("done", 10, 10)
    queue.cancel(first)
    assert first.state == "cancelled"  # dismissed: its row goes


def test_a_video_is_cancelled_at_its_next_step_and_one_that_waits_never_begins(queue, wait):
    first, second = job(), job()
    queue.jobs.append(second)
    queue.cancel(second)
    queue.load().before = lambda step: queue.cancel(first) if step == 4 else None
    queue.submit(first)
    wait(lambda: first.finished)
    assert (first.state, first.done) == ("cancelled", 5)
    assert (second.state, second.done) == ("cancelled", 0)


def test_the_commands_name_the_shot():
    shot = replace(Shot(), prompt="it's a house", steps=4, negative="rain", video_height=64)
    shell = shell_lines(shot, Path("a path.json"), "world:3").splitlines()
    render, generate = (shlex.split(line) for line in shell)
    assert render[:3] == ["ucpe", "render", "world:3"] and "a path.json" in render
    assert render[-1] == "commanded.mp4" and "--output" not in generate  # neither writes over the other
    import tyro

    options = tyro.cli(Generate, args=generate[2:])
    assert options.prompt == "it's a house" and options.sampling.height == 64 and options.frames == 17
    compile(python_lines(shot, Path("p.json"), "world:3", "i.png", "m", "a"), "shot.py", "exec")


@pytest.mark.slow
def test_the_command_and_the_python_lines_make_the_same_video(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shot = replace(Shot(frames=5), steps=1, guidance=2.0, negative="snow", seed=4, video_height=48, video_width=64)
    shot.camera.save("path.json")
    _, generate = shell_lines(shot, Path("path.json"), "world:3").splitlines()
    monkeypatch.setattr("sys.argv", [*shlex.split(generate), "-o", "typed.mp4"])
    ucpe.cli.main()
    exec(compile(python_lines(shot, Path("path.json"), "world:3"), "shot.py", "exec"), {})
    typed, scripted = (read_frames(tmp_path / name) for name in ("typed.mp4", "out.mp4"))
    assert typed.shape == (5, 48, 64, 3) and np.abs(typed.astype(int) - scripted).mean() < 0.5


@pytest.mark.slow
def test_the_render_command_films_the_pictures_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shot = replace(insert_move(set_lens(Shot(frames=5), Pinhole(xfov=80.0)), "orbit"), height=90, width=160)
    shot.camera.save("path.json")
    render, _ = shell_lines(shot, Path("path.json"), shot.scene).splitlines()
    monkeypatch.setattr("sys.argv", shlex.split(render))
    ucpe.cli.main()
    filmed = read_frames(tmp_path / "commanded.mp4").astype(int)
    scene = open_scene(shot.scene)
    assert filmed.shape == (5, 90, 160, 3)
    for frame, picture in enumerate(filmed):
        lens, c2w = shot.camera.lens_at(frame), shot.camera.c2w[frame]
        seen = scene.picture(lens, c2w, frame / shot.fps, shot.height, shot.width)
        assert np.abs(picture - seen).mean() < 4, frame


def test_a_shot_names_no_file_outside_the_uploads():
    for name in ("/etc/passwd", "../shots/a.json", "a.png"):
        with pytest.raises(ValueError, match="a file of the studio's uploads"):
            replace(Shot(), image=name)


@pytest.mark.parametrize(
    ("change", "level", "words"),
    [
        ({}, "fine", "within what the model was trained on"),
        ({"prompt": "a zeppelin on grass"}, "beyond training", "zeppelin"),
        ({"frames": 18}, "impossible", "frames"),
        ({"video_height": 65}, "impossible", "multiple"),
        ({"keys": (Key(0.0, WIDE, pitch=50.0),)}, "beyond training", "pitch"),
        ({"keys": (Key(0.0, WIDE), Key(16.0, WIDE, (0.0, 0.0, 4.0)))}, "beyond training", "4 near-plane depths"),
        ({"keys": (Key(0.0, {"model": "pinhole", "xfov": 40.0}),)}, "beyond training", "field of view"),
    ],
)
def test_preflight_says_what_the_model_will_not_honour(change, level, words):
    shot = replace(Shot(), **change)
    request = Request(shot.prompt, shot.camera, height=shot.video_height)
    assert any(finding.level == level and words in finding.text for finding in preflight(request))


def test_preflight_says_when_the_weights_do_not_fit_the_memory(monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}[name])
    findings = preflight(Request(Shot().prompt, Shot().camera))
    assert any(finding.level == "impossible" and "0.0 GB of memory" in finding.text for finding in findings)


@pytest.mark.parametrize(("blocks", "words"), [(None, "there is no folder"), (7, "num_blocks 7, this one has 6")])
def test_an_adapter_that_is_missing_or_of_another_model_is_said_by_the_preflight(tmp_path, blocks, words):
    server = pytest.importorskip("ucpe.studio.server", reason="needs the page's library: pip install 'ucpe[studio]'")
    adapter = tmp_path / "adapter"
    if blocks:
        adapter.mkdir()
        config = json.loads((desk.WEIGHTS / "camera_adapter" / "config.json").read_text())
        (adapter / "config.json").write_text(json.dumps({**config, "num_blocks": blocks}))
    studio = server.Studio(tmp_path / "studio", adapter=str(adapter))
    (finding,) = preflight(studio.request_of(studio.first_shot()))
    assert finding.level == "impossible" and words in finding.text
