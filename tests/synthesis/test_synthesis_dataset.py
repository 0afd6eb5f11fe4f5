import io
import json
import tarfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch

from ucpe.cli import dataset as dataset_command
from ucpe.lenses import FAMILIES, UCM, KannalaBrandt, stack_lenses
from ucpe.synthesis import rows as rows_module
from ucpe.synthesis.captions import SYSTEM_PROMPT, USER_PROMPT, CaptionError, EndpointCaptioner, caption_dataset
from ucpe.synthesis.clips import ClipSettings, synthesize
from ucpe.synthesis.dataset import (
    METADATA,
    DatasetClip,
    PanShotFolder,
    clip_of_row,
    clip_row,
    export_webdataset,
    open_dataset,
    read_metadata,
    write_metadata,
)
from ucpe.synthesis.statistics import (
    clips_block,
    contact_sheet,
    draw_categories,
    draw_statistics,
    few_clips,
    gather,
    statistics_of,
)
from ucpe.trajectories import Trajectory
from ucpe.video import write_video

SETTINGS = ClipSettings(frames=3, height=32, width=56)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    synthesize(["worlds:outdoor", "worlds:indoor"], folder, 12, SETTINGS)
    return folder


def test_a_row_keeps_all_of_a_clip(tmp_path):
    camera = Trajectory.orbit(KannalaBrandt(xfov=150, k1=0.01), degrees=30, frames=5, pitch=-10, fps=12)
    clip = DatasetClip("a", tmp_path / "videos/a.mp4", "é, “quoted”", camera, "other", "s", "test", "yaw", 2.5, 64, 96)
    write_metadata(tmp_path, [clip_row(clip, seed=3, start=7)])
    back = clip_of_row(tmp_path, read_metadata(tmp_path).to_pylist()[0])
    assert torch.allclose(back.camera.c2w, camera.c2w, atol=1e-6) and back.camera.fps == 12
    assert back.camera.lens.to_dict() == camera.lens.to_dict()
    for name in ("id", "video", "caption", "family", "source", "split", "variant", "near_depth", "height", "width"):
        assert getattr(back, name) == getattr(clip, name)


def test_items_batch_in_a_data_loader(dataset):
    folder = open_dataset(dataset)
    batch = next(iter(torch.utils.data.DataLoader(folder, batch_size=4, num_workers=0)))
    assert batch["video"].shape == (4, 3, 32, 56, 3) and batch["video"].dtype == torch.uint8
    assert batch["c2w"].shape == (4, 3, 4, 4)
    assert batch["lens"] == stack_lenses([folder.clip(index).camera.lens for index in range(4)])
    assert len(batch["caption"]) == 4 and all(batch["caption"])


def test_lenses_are_drawn_from_their_families(dataset):
    folder = open_dataset(dataset)
    for index in range(len(folder)):
        clip = folder.clip(index)
        family, lens = FAMILIES[clip.family], clip.camera.lens.parameters
        assert family.xfov[0] <= lens["xfov"] <= family.xfov[1] and family.xi[0] <= lens["xi"] <= family.xi[1]
        assert clip.camera.positions[0].abs().max() == 0


def test_hugging_face_reads_the_folder(dataset, tmp_path):
    datasets = pytest.importorskip("datasets")
    table = datasets.load_dataset("parquet", data_files=str(dataset / "metadata.parquet"), cache_dir=str(tmp_path))
    rows = table["train"]
    assert rows.num_rows == 12 and np.array(rows[0]["poses"]).shape == (3, 12)
    videos = datasets.load_dataset("videofolder", data_dir=str(dataset), cache_dir=str(tmp_path))["train"]
    videos = videos.cast_column("video", datasets.Video(decode=False))
    by_id = {row["id"]: row for row in videos}
    assert len(by_id) == 12
    assert Path(by_id["000000-yaw"]["video"]["path"]).name == "000000-yaw.mp4"


def test_webdataset_shards(dataset, tmp_path):
    folder = open_dataset(dataset)
    shards = export_webdataset(folder, tmp_path / "one", shard_clips=5)
    assert [path.name for path in shards] == ["clips-000000.tar", "clips-000001.tar", "clips-000002.tar"]
    again = export_webdataset(folder, tmp_path / "two", shard_clips=5)
    assert [path.read_bytes() for path in shards] == [path.read_bytes() for path in again]
    with tarfile.open(shards[0]) as tar:
        names = tar.getnames()
        facts = json.load(io.BytesIO(tar.extractfile(f"{folder.clip(0).id}.json").read()))
    assert names[:3] == [f"{folder.clip(0).id}.{kind}" for kind in ("mp4", "txt", "json")] and len(names) == 15
    assert facts["lens"] == folder.clip(0).camera.lens.to_dict() and len(facts["poses"]) == 3
    webdataset = pytest.importorskip("webdataset")
    samples = list(webdataset.WebDataset([str(path) for path in shards], shardshuffle=False))
    assert [sample["__key__"] for sample in samples] == [folder.clip(index).id for index in range(12)]
    assert samples[3]["txt"].decode() == folder.clip(3).caption
    assert samples[3]["mp4"] == folder.clip(3).video.read_bytes()


def test_panshot_layout_has_the_same_interface(tmp_path, published, capsys):
    match = "N99hmkAJwlQ-3-0-yaw_aug_0"
    stem = f"{match}-fov150-xi1.50"
    panshot = tmp_path / "PanShot"
    for name in ("meta-test", "pose-test", "videos-test"):
        (panshot / name).mkdir(parents=True)
    (tmp_path / "PanFlow").mkdir()
    depths = (published / "panshot/near_plane_depth-test.jsonl").read_text()
    (tmp_path / "PanFlow/near_plane_depth-test.jsonl").write_text(depths)
    (panshot / f"pose-test/{match}.npy").write_bytes((published / f"panshot/{match}.npy").read_bytes())
    entry = {"video": stem, "pose": match, "x_fov": 150.0, "xi": 1.5}
    (panshot / "meta-test/a.json").write_text(json.dumps([{"videos": [entry]}, {"clip_id": 4}]))
    (panshot / "captioned-test.jsonl").write_text(json.dumps({"video": stem, "caption": "a street"}) + "\n")
    write_video(panshot / f"videos-test/{stem}.mp4", np.zeros((81, 32, 56, 3), np.uint8), 16, preset="ultrafast")
    folder = open_dataset(tmp_path, "test")
    assert isinstance(folder, PanShotFolder) and len(folder) == 1
    clip, item = folder.clip(0), folder[0]
    assert (clip.family, clip.variant, clip.source, clip.caption) == ("fisheye", "yaw", "N99hmkAJwlQ", "a street")
    assert item["video"].shape == (81, 32, 56, 3) and item["c2w"].shape == (81, 4, 4)
    dataset_command.main(["stats", str(tmp_path), "--split", "test", "-o", str(tmp_path / "statistics")])
    assert '"clips": 1' in capsys.readouterr().out and (tmp_path / "statistics/cameras.png").is_file()
    depth = next(
        line["near_depth"]
        for line in map(json.loads, depths.splitlines())
        if (line["video_id"], str(line["clip_id"])) == ("N99hmkAJwlQ", "3")
    )
    raw = np.load(published / f"panshot/{match}.npy")[:, :, 3]
    assert clip.camera.path_length() == pytest.approx(
        np.linalg.norm(np.diff(raw, axis=0), axis=1).sum() / depth, rel=1e-4
    )


class Endpoint:
    """A local server that speaks the protocol, with a script of answers."""

    def __init__(self, answers):
        self.requests, self.headers = [], []
        self.answers = list(answers)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append((self.path, body))
                endpoint.headers.append(dict(self.headers))
                status, headers, content = endpoint.answers.pop(0) if len(endpoint.answers) > 1 else endpoint.answers[0]
                if status == "hang":
                    threading.Event().wait(2)
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


def answer(text: str) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


@pytest.fixture
def endpoint():
    made = []

    def make(*answers):
        made.append(Endpoint(answers))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


def test_the_request_is_the_papers(dataset, endpoint, monkeypatch):
    server = endpoint(answer("  A tower\n on sand. "))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    clip = open_dataset(dataset).clip(0)
    assert EndpointCaptioner(server.url, "qwen", frames=2).caption(clip.video) == "A tower on sand."
    path, body = server.requests[0]
    assert path == "/v1/chat/completions" and body["model"] == "qwen"
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert body["messages"][0] == {"role": "system", "content": SYSTEM_PROMPT}
    *images, text = body["messages"][1]["content"]
    assert text == {"type": "text", "text": USER_PROMPT} and len(images) == 2
    assert all(image["image_url"]["url"].startswith("data:image/jpeg;base64,") for image in images)


@pytest.mark.parametrize(
    "failure",
    [
        (500, {}, b"overloaded"),
        (429, {"Retry-After": "0"}, b"slow down"),
        (200, {}, b"{not json"),
        (200, {}, b'{"choices": []}'),
        answer("  "),
        ("hang", {}, b""),
    ],
    ids=["500", "429", "not json", "no choice", "empty", "timeout"],
)
def test_passing_failures_are_retried(dataset, endpoint, failure):
    server = endpoint(failure, failure, answer("fine"))
    captioner = EndpointCaptioner(server.url, "m", frames=1, timeout=1 if failure[0] == "hang" else 60, pause=0.01)
    assert captioner.caption(open_dataset(dataset).clip(0).video) == "fine"
    assert len(server.requests) == 3


def test_lasting_failures_are_reported(dataset, endpoint):
    video = open_dataset(dataset).clip(0).video
    refusing = endpoint((401, {}, b"bad key"))
    with pytest.raises(CaptionError, match="401 bad key"):
        EndpointCaptioner(refusing.url, "m", frames=1).caption(video)
    assert len(refusing.requests) == 1
    broken = endpoint((503, {}, b"down"))
    with pytest.raises(CaptionError, match="after 3 attempts"):
        EndpointCaptioner(broken.url, "m", frames=1, retries=2, pause=0.01).caption(video)
    with pytest.raises(CaptionError, match="after 1 attempts"):
        EndpointCaptioner("http://127.0.0.1:9/v1", "m", frames=1, retries=0, timeout=1).caption(video)


def test_a_dataset_is_captioned_where_it_has_none(tmp_path, endpoint):
    synthesize(["worlds"], tmp_path, 4, SETTINGS)
    rows = read_metadata(tmp_path).to_pylist()
    for row in rows[:3]:
        row["caption"] = ""
    write_metadata(tmp_path, rows)
    server = endpoint(answer("one"), (400, {}, b"no"), answer("three"))
    captioner = EndpointCaptioner(server.url, "m", frames=1)
    failures = caption_dataset(tmp_path, captioner, workers=1)
    assert list(failures) == [rows[1]["id"]]
    assert [row["caption"] for row in read_metadata(tmp_path).to_pylist()] == ["one", "", "three", rows[3]["caption"]]
    assert caption_dataset(tmp_path, captioner, workers=1) == failures and len(server.requests) == 3
    assert caption_dataset(tmp_path, captioner, workers=1, retry_failed=True) == {}
    assert read_metadata(tmp_path).to_pylist()[1]["caption"] == "three" and len(server.requests) == 4
    synthesize(["worlds"], tmp_path, 5, SETTINGS)
    assert [row["caption"] for row in read_metadata(tmp_path).to_pylist()][:2] == ["one", "three"]
    for model, caption, requests in (("m", "one", 4), ("n", "three", 5)):  # stopped before the table was written
        rows = read_metadata(tmp_path).to_pylist()
        write_metadata(tmp_path, [rows[0] | {"caption": ""}, *rows[1:]])
        assert caption_dataset(tmp_path, replace(captioner, model=model), workers=1) == {}
        assert read_metadata(tmp_path).to_pylist()[0]["caption"] == caption and len(server.requests) == requests


def test_dry_run_sends_nothing(dataset, endpoint, capsys):
    from ucpe.cli.dataset import main

    server = endpoint(answer("never"))
    main(["caption", str(dataset), "--url", server.url, "--model", "m", "--dry-run", "--again"])
    assert "12 of 12 clips" in capsys.readouterr().out
    assert server.requests == []


def test_statistics_are_those_of_known_cameras(tmp_path):
    def clip(name, move, variant="original"):
        return DatasetClip(name, tmp_path / f"{name}.mp4", "", move, "pinhole", variant=variant, categories=("Lakes",))

    lens = UCM(xfov=90)
    clips = [
        clip("a", Trajectory.dolly(lens, distance=1, frames=5, yaw=70)),
        clip("b", Trajectory.truck(lens, distance=2, frames=5, yaw=-20, pitch=15)),
        clip("c", Trajectory.pan(lens, frames=5, roll=12)),
    ]

    class Known:
        def __len__(self):
            return 3

        def clip(self, index):
            return clips[index]

    values = statistics_of("known", [clips_block(Known(), range(3))], {})
    assert values.directions == pytest.approx([0, 90], abs=1e-4)
    assert values.distances == pytest.approx([1, 2, 0], abs=1e-6)
    assert values.pitch == pytest.approx([0, 15, 0], abs=1e-4) and values.roll == pytest.approx([0, 0, 12], abs=1e-4)
    assert values.yfov == pytest.approx(np.rad2deg(2 * np.arctan(480 / 832)), abs=1e-3)
    assert values.categories == {"Lakes": 3} and values.summary()["forward_share"] == 0.5


def test_statistics_are_the_same_in_any_blocks_and_on_any_workers(dataset, tmp_path, monkeypatch):
    whole = gather(dataset)
    rows = read_metadata(dataset).to_pylist()
    monkeypatch.setattr(rows_module, "BLOCK", 5)
    write_metadata(tmp_path, rows)
    assert rows_module.row_groups(tmp_path / METADATA) == 3
    one, two = (gather(tmp_path, workers=workers) for workers in (1, 2))
    for name in ("directions", "distances", "yfov", "xfov", "xi", "pitch", "roll"):
        assert np.array_equal(getattr(one, name), getattr(two, name), equal_nan=True), name
        assert getattr(one, name) == pytest.approx(getattr(whole, name), rel=1e-5, nan_ok=True), name
    assert (two.families, two.variants, two.categories) == (whole.families, whole.variants, whole.categories)
    one_by_one = statistics_of("clips", [clips_block(open_dataset(tmp_path), range(len(rows)))], {})
    assert one_by_one.yfov == pytest.approx(whole.yfov) and one_by_one.pitch == pytest.approx(whole.pitch, abs=1e-4)
    few = few_clips(tmp_path, count=6)
    assert len(few) == 6 and {few.clip(index).id for index in range(6)} < {row["id"] for row in rows}
    with pytest.raises(ValueError, match="no clips"):
        gather(tmp_path, "validation")


def test_figures_are_drawn(dataset, published, tmp_path):
    values = [gather(dataset), gather(published / "re10k")]
    assert values[1].clips + values[1].left_out == 5
    assert (np.abs(values[1].yfov - 59) < 2).all()
    draw_statistics(values, tmp_path / "cameras.png")
    draw_categories(values[0], tmp_path / "categories.png")
    contact_sheet(few_clips(dataset), tmp_path / "sheet.png", rows=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cameras.png", "categories.png", "sheet.png"]
