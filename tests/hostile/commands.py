"""Hostile command lines: each must end in seconds, in one line that says what is wrong and an exit code that is not 0.

python tests/hostile/commands.py            all of them, in one limited process
python tests/hostile/commands.py yaml       those whose name holds a word
"""

from __future__ import annotations

import io
import json
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

MAX_SECONDS = 20
"""Most time of the processor for a command line, in seconds, and a tenth of the longest time by the clock."""

MAX_MEMORY = 6 * 2**30
"""Most memory, in bytes of address space beyond what the libraries take."""


class Slow(BaseException):
    """A command that took too long."""


def _too_slow(*_: Any) -> None:
    raise Slow


def run_command(arguments: list[str]) -> tuple[int, str, float]:
    """Exit code, what was written to stderr without warnings and notes, and the seconds of the processor it took."""
    from ucpe.cli import main

    errors, before, began = io.StringIO(), sys.argv, time.process_time()
    signal.signal(signal.SIGALRM, _too_slow)
    signal.signal(signal.SIGPROF, _too_slow)
    signal.alarm(10 * MAX_SECONDS)
    signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
    try:
        sys.argv = ["ucpe", *arguments]
        with redirect_stdout(io.StringIO()), redirect_stderr(errors):
            main()
        code: Any = 0
    except SystemExit as left:
        code = left.code or 0
    except Slow:
        code = -1
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.argv = before
    lines = [line for line in errors.getvalue().splitlines() if ": warning: " not in line and line[:6] != "note: "]
    return code, "\n".join(line for line in lines if line.strip()), time.process_time() - began


def judge(code: int, shown: str) -> str:
    """What is wrong with the end of a command that had to refuse; nothing if it refused in one line."""
    if code == -1:
        return f"took more than {MAX_SECONDS} s"
    if code == 0:
        return "exit code 0"
    if code not in (1, 2):
        return f"exit code {code}: {shown[:300]}"
    if "Traceback" in shown or shown.count("\n") or not shown:
        return f"not one line: {shown[:300]!r}"
    return ""


def make_files(folder: Path) -> None:
    """Files that are wrong in known ways, and a few good ones to use them with."""
    import torch
    from PIL import Image
    from safetensors.torch import load_file, save_file

    from ucpe.adapters import CameraAdapter
    from ucpe.adapters.released import RELEASED_GEOMETRY, write_released
    from ucpe.lenses import UCM
    from ucpe.synthesis.dataset import DatasetClip, clip_row, write_metadata
    from ucpe.trajectories import Trajectory
    from ucpe.video import write_video

    def text(name: str, content: Any) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    camera = Trajectory.orbit(UCM(xfov=120, xi=0.8), degrees=20, frames=9)
    camera.save(folder / "camera.json")
    video = np.random.default_rng(0).integers(0, 255, (9, 32, 64, 3), np.uint8)
    write_video(folder / "video.mp4", video, 8)
    (folder / "folder").mkdir()
    (folder / "full.mp4").mkdir()
    data = (folder / "video.mp4").read_bytes()
    (folder / "header.mp4").write_bytes(data[:40])
    (folder / "noise.mp4").write_bytes(np.random.default_rng(1).bytes(4000))
    (folder / "codec.mp4").write_bytes(data.replace(b"avc1", b"zzz1"))
    (folder / "empty").write_bytes(b"")
    (folder / "secret.txt").write_text("secret")

    text("deep.json", "[" * 100_000 + "]" * 100_000)
    text("deep.yaml", "a: " + "[" * 10_000 + "]" * 10_000)
    text("broken.yaml", "camera_matrix: [1, 2\nfoo: {bar\n")
    text("tag.yaml", "camera_matrix: !!python/object/apply:os.system ['true']\n")
    aliases = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    aliases += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    text("aliases.yaml", "\n".join(aliases))
    text("line.txt", "1 " * 30_000_000)
    text("digits.json", '{"model": "ucm", "xfov": ' + "9" * 400 + "}")
    text("digits.txt", "\n".join(["9" * 400 + " 0 0 0 0 0 0 1"] * 3))
    text("huge.json", {"model": "ucm", "xfov": 1e300, "xi": -1e300})
    text("nan.json", '{"model": "pinhole", "xfov": NaN}')
    text("word.json", {"model": "kannala_brandt", "fx": "wide", "width": 64, "height": 48})
    text("nosize.yaml", "camera_matrix: [[400, 0, 1], [0, 400, 1], [0, 0, 1]]\n")
    text("two.yaml", "cam0: {intrinsics: [1, 1, 1, 1]}\ncam1: {intrinsics: [1, 1, 1, 1]}\n")
    text("zero.json", {"format": "ucpe-trajectory", "version": 1, "fps": 16, "lens": {"model": "pinhole"}, "c2w": []})
    text("ragged.json", {**json.loads((folder / "camera.json").read_text()), "c2w": [[[1, 0], [0]], [[2]]]})
    text("rate.json", {**json.loads((folder / "camera.json").read_text()), "fps": -5})

    np.save(folder / "words.npy", np.array(["a", "b"]))
    np.save(folder / "flat.npy", np.zeros(12))
    np.save(folder / "nan.npy", np.full((4, 3, 4), np.nan))
    np.save(folder / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    whole = (folder / "flat.npy").read_bytes()
    (folder / "header.npy").write_bytes(whole[:30])
    (folder / "promise.npy").write_bytes(whole.replace(b"(12,)", b"(9" + b"9" * 12 + b",)").ljust(200))
    np.savez(folder / "far.npz", data=np.tile(np.eye(4), (2, 1, 1)), inds=np.array([0, 400_000_000]))
    with zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", whole + bytes(50_000_000))
        archive.writestr("inds.npy", whole)

    image = Image.fromarray(video[0])
    image.save(folder / "image.png")
    wide = (folder / "image.png").read_bytes()
    (folder / "bomb.png").write_bytes(wide[:16] + (2**30).to_bytes(4, "big") * 2 + wide[24:])
    (folder / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0" + b"\0" * 20)

    for name, entry in ENTRIES.items():
        text(f"list-{name}.json", entry if isinstance(entry, list) else [{**GOOD, **entry}])
    text("list-word.yaml", "just a word\n")
    text("record.json", {"request": {"prompt": 5}})

    torch.manual_seed(0)
    CameraAdapter(width=128, num_blocks=2, base_heads=1, compression=1, heads=1, head_dim=128).save_pretrained(
        folder / "adapter"
    )
    weights = next((folder / "adapter").glob("*.safetensors"))
    state = load_file(weights)
    first = next(iter(state))

    def adapter(name: str, tensors: dict[str, Any] | None = None, config: Any = None) -> None:
        shutil.copytree(folder / "adapter", folder / name)
        if tensors is not None:
            save_file(tensors, folder / name / weights.name)
        if config is not None:
            text(f"{name}/config.json", config)

    config = json.loads((folder / "adapter" / "config.json").read_text())
    adapter("adapter-nan", {**state, first: torch.full_like(state[first], torch.nan)})
    adapter("adapter-inf", {**state, first: torch.full_like(state[first], torch.inf)})
    adapter("adapter-lacks", {name: value for name, value in state.items() if name != first})
    adapter("adapter-list", config=[1, 2])
    adapter("adapter-unknown", config={**config, "colour": "red"})
    adapter("adapter-blocks", config={**config, "num_blocks": 10_000_000})
    adapter("adapter-text", config="{")
    released = CameraAdapter(width=128, num_blocks=1, base_heads=1, heads=1, head_dim=128, **RELEASED_GEOMETRY)
    write_released(released, folder / "released.bin")
    good = torch.load(folder / "released.bin", weights_only=True)
    name = next(iter(good))
    far = {key.replace("blocks.0.", "blocks.99999999."): value for key, value in good.items()}
    torch.save({**good, **far}, folder / "far.bin")
    torch.save({**good, name: good[name][:0]}, folder / "norows.bin")
    torch.save({7: torch.zeros(3)}, folder / "integer.bin")
    torch.save([1, 2], folder / "list.bin")
    (folder / "noise.bin").write_bytes(b"\x80\x02garbage")

    for kind, content in {"list": [1], "empty": {}, "unknown": {"_class_name": "NoPipeline"}}.items():
        text(f"model-{kind}/model_index.json", content)
    text("model-broken/model_index.json", "{")

    ours = folder / "dataset"
    write_video(ours / "videos" / "one.mp4", video, 16)
    clip = DatasetClip("one", ours / "videos" / "one.mp4", "a park", camera, "fisheye", height=32, width=64, scores={})
    row = clip_row(clip)
    write_metadata(ours, [row])
    for name, changes in ROWS.items():
        shutil.copytree(ours, folder / f"dataset-{name}")
        write_table(folder / f"dataset-{name}" / "metadata.parquet", changes)
    text("panshot/PanShot/meta-train/v.json", [{"videos": [{"video": 5, "pose": None, "x_fov": "wide", "xi": []}]}])
    text("panshot/PanShot/captioned-train.jsonl", {"video": 3, "caption": None})
    (folder / "panshot/PanShot/pose-train").mkdir()
    (folder / "panshot/PanShot/videos-train").mkdir()


GOOD = {"prompt": "a tower", "camera": "camera.json"}
ENTRIES: dict[str, Any] = {
    "none": [],
    "numbers": [1, 2],
    "model": {"model": "other"},
    "camera": {"camera": 5},
    "nocamera": {"camera": "absent.json"},
    "outside": {"camera": "../../../etc/hostname"},
    "absolute": {"camera": "/etc/hostname"},
    "prompt": {"prompt": 5},
    "emptyprompt": {"prompt": "  "},
    "seed": {"seed": "x"},
    "negativeseed": {"seed": -5},
    "hugeseed": {"seed": 10**30},
    "steps": {"steps": -1},
    "nosteps": {"steps": 0},
    "manysteps": {"steps": 10**9},
    "guidance": {"guidance": "strong"},
    "nanguidance": {"guidance": float("nan")},
    "guidancelist": {"guidance": [1]},
    "height": {"height": 1_000_000, "width": 1_000_000},
    "heightword": {"height": "tall"},
    "negativeheight": {"height": -48},
    "image": {"image": "absent.png"},
    "negative": {"negative": 5},
}
"""Lists for `generate --list` by name: entries, or what is wrong in the only one."""

ROWS: dict[str, dict[str, Any]] = {
    "absolute": {"file_name": "/etc/hostname"},
    "outside": {"file_name": "../secret.txt"},
    "gone": {"file_name": "videos/gone.mp4"},
    "null": {"file_name": None},
    "id": {"id": "../../evil"},
}
"""What is wrong in a dataset's metadata, by name."""


def write_table(path: Path, changes: dict[str, Any]) -> None:
    """Change columns of a table."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    for name, value in changes.items():
        index = table.column_names.index(name)
        table = table.set_column(index, name, pa.array([value] * table.num_rows, table.schema.field(name).type))
    parquet.write_table(table, path)


def commands() -> dict[str, str]:
    """Command lines by name, run in the folder of `make_files`."""
    found: dict[str, str] = {}
    for file in (
        "deep.json", "deep.yaml", "broken.yaml", "tag.yaml", "aliases.yaml", "digits.json", "huge.json", "nan.json",
        "word.json", "nosize.yaml", "two.yaml", "empty", "video.mp4", "image.png", "absent.yaml", "folder",
    ):  # fmt: skip
        found[f"lens {file}"] = f"lens show {file} -o out.png"
    found["lens convert"] = "lens convert two.yaml:cam7 out.json"
    found["lens of render"] = "render image.png --lens broken.yaml -o out.png"
    for option in ("--xfov 0", "--xfov nan", "--xfov 1e400", "--xi -1", "--height 0", "--width 100000", "--k9 1"):
        found[f"lens {option}"] = f"lens show fisheye {option} -o out.png"
    for file in (
        "deep.json", "line.txt", "digits.txt", "zero.json", "ragged.json", "rate.json", "words.npy", "flat.npy",
        "nan.npy", "objects.npy", "header.npy", "promise.npy", "far.npz", "bomb.npz", "empty", "video.mp4", "folder",
        "absent.txt", "aliases.yaml", "released.bin",
    ):  # fmt: skip
        found[f"path {file}"] = f"trajectory convert {file} out.json"
    found["path into a file"] = "trajectory convert camera.json secret.txt/out.json"
    found["path of no format"] = "trajectory convert camera.json out.xyz"
    found["path of many frames"] = "trajectory convert camera.json out.json --frames 1000000000"
    found["path of no frames"] = "trajectory convert camera.json out.json --frames 0"
    for name in (*ENTRIES, "word"):
        suffix = "yaml" if name == "word" else "json"
        found[f"list {name}"] = f"generate --list list-{name}.{suffix} -o made --steps 1"
        if "steps" in name:
            found[f"list {name}"] = f"generate --list list-{name}.json -o made"
    for option in (
        "-o folder", "-o full.mp4", "-o secret.txt/x.mp4", "-o out.txt", "--steps -1", "--steps 0", "--guidance nan",
        "--height 100000 --width 100000", "--height 7", "--frames -3", "--frames 100000000", "--fps 0", "--fps nan",
        "--image bomb.png", "--image cut.jpg", "--image absent.png", "--camera zero.json", "--move fly", "--seed x",
        "--device nowhere", "--adapter adapter-nan", "--adapter absent", "--adapter far.bin", "--model model-list",
        "--model model-empty", "--model model-unknown", "--model model-broken", "--model absent/folder/model",
        "--lora absent.safetensors", "--scale 2", "--lens absent.yaml", "--xfov 400", "--negative-file absent",
    ):  # fmt: skip
        found[f"generate {option}"] = f"generate tower {option}"
    found["generate nothing"] = "generate"
    found["generate again"] = "generate --again record.json"
    found["generate again, empty"] = "generate --again empty"
    for name in (
        "adapter-nan", "adapter-inf", "adapter-lacks", "adapter-list", "adapter-unknown", "adapter-blocks",
        "adapter-text", "far.bin", "norows.bin", "integer.bin", "list.bin", "noise.bin", "empty", "absent", "folder",
        "image.png",
    ):  # fmt: skip
        found[f"adapter {name}"] = f"adapter info {name}"
    for name in ROWS:
        found[f"export {name}"] = f"dataset export dataset-{name} -o shards-{name}"
    for name in ("folder", "absent", "panshot", "video.mp4"):
        found[f"stats {name}"] = f"dataset stats {name} -o statistics"
    found["export none a shard"] = "dataset export dataset -o shards --shard-clips 0"
    found["export no engine"] = "dataset export dataset -o shards --engine sun"
    found["export no workers"] = "dataset export dataset -o shards --workers 0"
    found["caption"] = "dataset caption dataset --again --url nowhere --model m"
    for name in ("header.mp4", "noise.mp4", "codec.mp4", "empty", "bomb.png", "cut.jpg", "absent.mp4", "folder"):
        found[f"render {name}"] = f"render {name} -o out.mp4"
        found[f"track {name}"] = f"track {name} --xfov 80 -o out.json"
    for option in (
        "-o out.txt", "-o folder", "-o full.mp4", "-o secret.txt/x.mp4", "-o out.png --frames 5", "--crf -5",
        "--crf nan", "--crf 99", "--height 100000 --width 100000", "--height 0", "--frames 0", "--frames -1", "--fps 0",
        "--start 1e9", "--start -3", "--lens absent", "--lens pinhole,pinhole", "--camera zero.json",
        "--camera nan.npy", "--threads 0", "--move fly", "--move pan --camera camera.json", "--yaw inf",
        "--projection cube",
    ):  # fmt: skip
        found[f"render {option}"] = f"render video.mp4 {option}"
    found["world word"] = "render world:x -o out.mp4"
    found["world negative"] = "render world:-5 -o out.mp4"
    for option in (
        "--start 99",
        "--frames 1",
        "--every 0",
        "--height 3",
        "-o out.xyz",
        "--lens absent",
        "--pose stored",
    ):
        found[f"track {option}"] = f"track video.mp4 --xfov 80 {option}"
    found["synthesize nothing"] = "synthesize absent.jsonl -o made"
    found["synthesize folder"] = "synthesize folder -o made"
    found["synthesize text"] = "synthesize secret.txt -o made"
    found["curate nothing"] = "curate absent -o curated"
    found["curate empty"] = "curate folder -o curated"
    found["match nothing"] = "match absent --motions absent -o matches.parquet"
    found["evaluate nothing"] = "evaluate absent --cameras absent -o evaluated"
    found["evaluate empty"] = "evaluate folder --cameras folder -o evaluated"
    found["evaluate camera"] = "evaluate video.mp4 --cameras zero.json -o evaluated"
    found["report nothing"] = "report absent -o report"
    found["train nothing"] = "train absent"
    found["train text"] = "train secret.txt"
    found["studio port"] = "studio --port 99999999"
    found["no command"] = "fly"
    found["no subcommand"] = "lens fly"
    found["unknown option"] = "render video.mp4 --colour red"
    return found


def run_all(words: list[str]) -> int:
    """Run the commands whose names hold all words, say what is wrong, and return how many are."""
    import os

    wrong = 0
    with tempfile.TemporaryDirectory(prefix="ucpe-hostile-") as place:
        make_files(Path(place))
        os.chdir(place)
        space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (space + MAX_MEMORY,) * 2)
        chosen = {name: line for name, line in commands().items() if all(word in name for word in words)}
        slowest = (0.0, "")
        for line in chosen.values():
            code, shown, seconds = run_command(line.split())
            slowest = max(slowest, (seconds, line))
            problem = judge(code, shown)
            wrong += bool(problem)
            if problem or words:
                print(f"{'WRONG' if problem else 'refused'}: ucpe {line}\n    {problem or shown}", flush=True)
        print(f"{len(chosen)} command lines, {wrong} not refused in one line; slowest {slowest[0]:.1f} s: {slowest[1]}")
    return wrong


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
    sys.exit(bool(run_all(sys.argv[1:])))
