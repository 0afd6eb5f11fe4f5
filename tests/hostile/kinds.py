"""Every kind of file the package reads: good ones to start from, and the reader that gets the damaged copy.

Lens and trajectory formats come from their registries, so a new format is tried from the day it is registered.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

SAMPLES = next(
    (up / "shared" / "data" for up in Path(__file__).resolve().parents if (up / "shared" / "data").is_dir()),
    Path("absent"),
)
"""Real files, where there are any."""


@dataclass(frozen=True)
class Kind:
    """A kind of file: good ones (files or folders), which files of a folder to damage, and what reads it."""

    name: str
    good: list[Path]
    read: Callable[[Path], Any]
    damaged: tuple[str, ...] = ("*",)
    every: int = 1
    """In how many rounds over all kinds it takes part once; more for those that take long."""

    def files(self, path: Path) -> list[Path]:
        """The files of a copy that may be damaged."""
        if path.is_file():
            return [path]
        return sorted(file for pattern in self.damaged for file in path.rglob(pattern) if file.is_file())


def all_kinds(folder: Path) -> list[Kind]:
    """Make good files in a folder and say how each kind is read."""
    kinds: list[Kind] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for make in (lenses, trajectories, lists, datasets, adapters, pictures, evaluations, motions, pipelines, shots):
            place = folder / make.__name__
            place.mkdir(parents=True)
            kinds += make(place)
        kinds += command_lines(kinds)
    return [kind for kind in kinds if kind.good]


def command_lines(kinds: list[Kind]) -> list[Kind]:
    """The same files through the real command line, which must read them or refuse them in one line."""
    from commands import run_command

    def through(*arguments: str) -> Callable[[Path], None]:
        def read(path: Path) -> None:
            given = [str(path) if word == "FILE" else str(path.parent / word.removeprefix("+")) for word in arguments]
            words = [text if word[0] in "F+" else word for word, text in zip(arguments, given)]
            code, shown, _ = run_command(words)
            if code == 1:
                assert shown and "\n" not in shown and "Traceback" not in shown, f"not one line: {shown}"
                raise ValueError(shown)
            if code:
                raise RuntimeError(f"exit code {code}: {shown}")

        return read

    lines = {
        "lens": ("lens", "convert", "FILE", "+out.json"),
        "trajectory": ("trajectory", "convert", "FILE", "+out.json"),
        "adapter": ("adapter", "info", "FILE"),
        "released adapter": ("adapter", "info", "FILE"),
        "dataset": ("dataset", "export", "FILE", "-o", "+shards"),
        "panshot": ("dataset", "export", "FILE", "-o", "+shards"),
        "image": ("render", "FILE", "-o", "+out.png", "--height", "16", "--width", "32"),
        "video": ("render", "FILE", "-o", "+out.mp4", "--height", "16", "--width", "32", "--frames", "2"),
    }
    return [
        Kind(f"command {' '.join(line[:2])}: {kind.name}", kind.good, through(*line), kind.damaged, every=4)
        for kind in kinds
        for name, line in lines.items()
        if kind.name == name or (name in ("lens", "trajectory") and kind.name.startswith(f"{name} "))
    ]


def check_lens(lens: Any) -> None:
    """Raise AssertionError unless the rays of a lens are finite and of unit length, or not valid."""
    one = lens[(0,) * len(lens.batch_shape)] if lens.batch_shape else lens
    rays = one.rays(4, 6)
    assert rays.directions.isfinite().all() and rays.origins.isfinite().all(), "rays are not finite"
    assert ((rays.directions.norm(dim=-1) - 1).abs() < 1e-3).all(), "rays are not of unit length"
    assert one.project(rays.directions, 4, 6)[0].isfinite().all(), "pixels are not finite"
    json.dumps(lens.to_dict(), allow_nan=False)


def check_camera(camera: Any) -> None:
    """Raise AssertionError unless a trajectory is finite."""
    assert camera.c2w.isfinite().all() and camera.fps > 0
    check_lens(camera.lens)


def lenses(folder: Path) -> list[Kind]:
    """Calibrations in every format."""
    from ucpe.lenses import MODELS, lens_by_name, load_lens
    from ucpe.lenses.files import FORMATS

    kinds = []
    for name in FORMATS:
        good = []
        for model in MODELS:
            for suffix in (".yaml", ".json"):
                path = folder / name / (f"{model}{suffix}" if name != "colmap" else f"{model}/cameras.txt")
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    lens_by_name(model).save(path, name, height=48, width=64)
                    load_lens(path)
                    good.append(path)
                except (ValueError, OSError, AttributeError, TypeError, NotImplementedError):
                    path.unlink(missing_ok=True)
        kinds.append(Kind(f"lens {name}", good, lambda path: check_lens(load_lens(path))))
    for path in small_files(SAMPLES / "calibrations"):
        copy = shutil.copy(path, folder)
        if readable(load_lens, Path(copy)):
            kinds.append(Kind(f"lens {path.name}", [path], lambda path: check_lens(load_lens(path))))
    for name, content in TEMPLATES.items():
        (folder / name).write_text(content)
        load_lens(folder / name)
        kinds.append(Kind(f"lens {name}", [folder / name], lambda path: check_lens(load_lens(path))))
    return kinds


SCALE = {"fx": 40.0, "fy": 41.0, "cx": 31.0, "cy": 23.0}
TEMPLATES = {
    "basalt.json": json.dumps({"value0": {"resolution": [[64, 48]], "T_imu_cam": [{}], "intrinsics": [
        {"camera_type": "kb4", "intrinsics": {**SCALE, "k1": 0.01, "k2": 0.0, "k3": 0.0, "k4": 0.0}}]}}),
    "camodocal.yaml": "%YAML:1.0\n---\nmodel_type: MEI\nimage_width: 64\nimage_height: 48\n"
    "mirror_parameters:\n   xi: 1.2\ndistortion_parameters:\n   k1: 0.01\n   k2: 0.0\n   p1: 0.0\n   p2: 0.0\n"
    "projection_parameters:\n   gamma1: 80.0\n   gamma2: 80.0\n   u0: 31.0\n   v0: 23.0\n",
    "stella.yaml": "Camera:\n  model: radial_division\n  fx: 40.0\n  fy: 40.0\n  cx: 31.0\n  cy: 23.0\n"
    "  distortion: -0.1\n  cols: 64\n  rows: 48\n",
    "orbslam.yaml": '%YAML:1.0\nCamera.type: "KannalaBrandt8"\nCamera1.fx: 40.0\nCamera1.fy: 40.0\nCamera1.cx: 31.0\n'
    "Camera1.cy: 23.0\nCamera1.k1: 0.01\nCamera1.k2: 0.0\nCamera1.k3: 0.0\nCamera1.k4: 0.0\nCamera.width: 64\n"
    "Camera.height: 48\n",
    "dso.txt": "FOV 40.0 40.0 31.0 23.0 0.9\n64 48\ncrop\n64 48\n",
    "ocam.txt": "#polynomial\n5 -40.0 0.0 1e-3 0.0 0.0\n2 1.0 1.0\n23.0 31.0\n1.0 0.0 0.0\n48 64\n",
    "euroc.yaml": "camera_model: pinhole\nintrinsics: [40.0, 40.0, 31.0, 23.0]\nresolution: [64, 48]\n"
    "distortion_model: radial-tangential\ndistortion_coefficients: [-0.2, 0.05, 0.0, 0.0]\n",
    "gyroflow.json": json.dumps({"calib_dimension": {"w": 64, "h": 48}, "fisheye_params": {
        "camera_matrix": [[40.0, 0, 31], [0, 40.0, 23], [0, 0, 1]], "distortion_coeffs": [0.1, 0.0, 0.0, 0.0]}}),
    "woodscape.json": json.dumps({"intrinsic": {"model": "radial_poly", "poly_order": 4, "width": 64.0, "height": 48.0,
        "k1": 30.0, "k2": -2.0, "k3": 3.0, "k4": -0.5, "cx_offset": 1.0, "cy_offset": -1.0, "aspect_ratio": 1.0}}),
    "matlab.json": json.dumps({"IntrinsicMatrix": [[40.0, 0, 0], [0, 40.0, 0], [31, 23, 1]], "ImageSize": [48, 64],
        "RadialDistortion": [0.1, 0.0], "TangentialDistortion": [0.0, 0.0]}),
    "opencv.xml": '<?xml version="1.0"?>\n<opencv_storage>\n<image_width>64</image_width>\n'
    '<image_height>48</image_height>\n<camera_matrix type_id="opencv-matrix">\n  <rows>3</rows>\n  <cols>3</cols>\n'
    "  <dt>d</dt>\n  <data>40. 0. 31. 0. 40. 23. 0. 0. 1.</data></camera_matrix>\n</opencv_storage>\n",
    "plain.json": json.dumps({**SCALE, "k1": 0.1, "width": 64, "height": 48}),
    "kitti.txt": "K_02: 40 0 31 0 40 23 0 0 1\nD_02: -0.3 0.1 0 0 0\nS_02: 64 48\n",
    "ost.ini": "[image]\n\nwidth\n64\n\nheight\n48\n\n[camera]\n\ncamera matrix\n40 0 31\n0 40 23\n0 0 1\n\n"
    "distortion\n-0.2 0.05 0 0 0\n",
    "okvis.yaml": "cameras:\n - {image_dimension: [64, 48], distortion_coefficients: [-0.2, 0.05, 0.0, 0.0],\n"
    "    distortion_type: radialtangential, focal_length: [40.0, 40.0], principal_point: [31.0, 23.0]}\n",
    "svo.yaml": "cameras:\n- camera:\n    distortion: {parameters: {cols: 1, rows: 4, data: [0.1, 0.0, 0.0, 0.0]},\n"
    "      type: equidistant}\n    image_height: 48\n    image_width: 64\n    intrinsics: {data: [40, 40, 31, 23]}\n"
    "    type: pinhole\n",
    "vikit.yaml": "cam_model: Pinhole\ncam_width: 64\ncam_height: 48\ncam_fx: 40.0\ncam_fy: 40.0\ncam_cx: 31.0\n"
    "cam_cy: 23.0\ncam_d0: -0.2\n",
    "camera_models.json": json.dumps({"v2 a": {"projection_type": "perspective", "width": 64, "height": 48,
        "focal": 0.9, "k1": 0.1, "k2": 0.0}}),
    "photoscan.xml": "<calibration><width>64</width><height>48</height><fx>40</fx><fy>41</fy><cx>31</cx><cy>23</cy>"
    "<k1>-0.1</k1><p1>0.001</p1></calibration>",
}  # fmt: skip
"""Calibrations in the formats that are read and not written."""


def trajectories(folder: Path) -> list[Kind]:
    """Camera paths in every format."""
    from ucpe.lenses import lens_by_name
    from ucpe.trajectories import Trajectory
    from ucpe.trajectories.formats import FORMATS

    def read(path: Path) -> None:
        check_camera(Trajectory.load(path))

    kinds = []
    for name in FORMATS:
        good = []
        for lens in ("pinhole", "fisheye"):
            suffixes = {
                "ucpe": ".json",
                "nerfstudio": "/transforms.json",
                "colmap": "",
                "panshot": ".npy",
                "vipe": ".npz",
            }
            path = folder / f"{name}-{lens}{suffixes.get(name, '.txt')}"
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                Trajectory.orbit(lens_by_name(lens), degrees=30, frames=6).save(path, format=name)
                read(path)
                good.append(path)
            except (ValueError, OSError, AttributeError, TypeError, NotImplementedError):
                continue
        kinds.append(Kind(f"trajectory {name}", good, read))
    real = [*small_files(SAMPLES / "trajectories"), *small_files(SAMPLES / "re10k"), *small_files(SAMPLES / "panshot")]
    kinds.append(Kind("trajectory real", [path for path in real if readable(read, path)], read))
    for name, content in PATHS.items():
        (folder / name).write_text(content)
        read(folder / name)
        kinds.append(Kind(f"trajectory {name}", [folder / name], read))
    return kinds


ROWS = [[1.0, 0, 0, 0.1], [0, 1.0, 0, 0.2], [0, 0, 1.0, 0.3], [0, 0, 0, 1]]
CAMERA = {"projection_type": "perspective", "width": 64, "height": 48, "focal": 0.9, "k1": 0.0, "k2": 0.0}
PATHS = {
    "euroc.csv": "#timestamp,p_RS_R_x [m],p_RS_R_y [m],p_RS_R_z [m],q_RS_w [],q_RS_x [],q_RS_y [],q_RS_z []\n"
    + "".join(f"{1403715524907143168 + 50_000_000 * i},{i},0,0,1,0,0,0\n" for i in range(4)),
    "camera_path.json": json.dumps({"camera_type": "perspective", "render_width": 64, "render_height": 48, "fps": 24,
        "seconds": 0.1, "camera_path": [{"camera_to_world": ROWS, "fov": 50 + i, "aspect": 1.5} for i in range(3)]}),
    "recammaster.json": json.dumps(
        {f"frame{i}": {"cam01": f"[1 0 0 0] [0 1 0 0] [0 0 1 0] [{i} 0 0 1] "} for i in range(3)}
    ),
    "opensfm.json": json.dumps([{"cameras": {"c": CAMERA}, "shots": {
        f"{i}.jpg": {"rotation": [0.1, 0, 0], "translation": [i, 0, 0], "camera": "c"} for i in range(3)}}]),
    "motionctrl.json": json.dumps([[1.0, 0, 0, 0.1 * i, 0, 1.0, 0, 0, 0, 0, 1.0, 0] for i in range(3)]),
    "blocks.log": "\n".join(" ".join(map(str, row)) for i in range(3) for row in [[i, i, i + 1], *ROWS]),
}  # fmt: skip
"""Paths in the formats that are read and not written."""


def small_files(folder: Path) -> list[Path]:
    """Files of a folder up to 200 kB."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size < 200_000)


def readable(read: Callable[[Path], Any], path: Path) -> bool:
    """Whether a reader takes a file as it is."""
    try:
        read(path)
    except Exception:
        return False
    return True


def lists(folder: Path) -> list[Kind]:
    """What `generate` and `synthesize` are given: lists, records, demo files, sources, depths."""
    from ucpe.generation import requests
    from ucpe.lenses import lens_by_name
    from ucpe.synthesis.sources import open_sources
    from ucpe.trajectories import Trajectory
    from ucpe.trajectories.formats.captioned import read_demo, read_near_depths
    from ucpe.video import write_video

    camera = Trajectory.orbit(lens_by_name("fisheye"), degrees=30, frames=5)
    camera.save(folder / "camera.json")
    Trajectory.orbit(lens_by_name("pinhole"), degrees=30, frames=5).save(folder / "re10k.txt", format="realestate10k")
    Trajectory.orbit(lens_by_name("pinhole"), degrees=30, frames=5).save(folder / "a-1-0-no_rot_aug_0.npy")
    entry = {"prompt": "a tower", "camera": "camera.json", "seed": 3, "steps": 4, "guidance": 5.0}
    (folder / "list.json").write_text(json.dumps([entry, entry]))
    (folder / "list.yaml").write_text("- prompt: a tower\n  camera: camera.json\n  seed: 3\n  height: 48\n")
    shot = {"pose_path": "data/re10k.txt", "x_fov": 100.0, "xi": 0.0, "caption": "a cat"}
    (folder / "demo.json").write_text(json.dumps([shot, {**shot, "x_fov": 180, "xi": 1.5}]))
    (folder / "depths.jsonl").write_text('{"video_id": "a", "clip_id": "1", "near_depth": 2.5}\n')
    write_video(folder / "walk.mp4", np.zeros((5, 32, 64, 3), np.uint8), 8)
    np.save(folder / "walk.npy", camera.c2w[:, :3].numpy())
    source = {"video": "walk.mp4", "poses": "walk.npy", "near_depth": 2.0, "scores": {"quality": 0.8}, "start": 0}
    (folder / "sources.jsonl").write_text(json.dumps({**source, "rotations": ["walk.npy"], "categories": ["park"]}))
    record = requests.Request(prompt="a tower", camera=camera, seed=4).to_dict()
    (folder / "record.json").write_text(json.dumps({"ucpe": "0", "request": record}))

    def read_sources(path: Path) -> None:
        for source in open_sources([path]):
            source.check()

    def read_demo_cameras(path: Path) -> None:
        for shot in read_demo(path):
            check_camera(shot.trajectory())

    whole = Path(folder)
    return [
        Kind("generate list", [whole], lambda path: requests.read_list(path / "list.json"), ("list.json",)),
        Kind("generate yaml list", [whole], lambda path: requests.read_list(path / "list.yaml"), ("list.yaml",)),
        Kind("generate demo list", [whole], lambda path: requests.read_list(path / "demo.json"), ("demo.json",)),
        Kind("generate record", [folder / "record.json"], requests.read_again),
        Kind("demo", [whole], lambda path: read_demo_cameras(path / "demo.json"), ("demo.json",)),
        Kind("near depths", [folder / "depths.jsonl"], read_near_depths),
        Kind("sources", [whole], lambda path: read_sources(path / "sources.jsonl"), ("sources.jsonl",)),
    ]


def datasets(folder: Path) -> list[Kind]:
    """Datasets of ours, and PanShot's."""
    from ucpe.lenses import UCM
    from ucpe.synthesis.dataset import DatasetClip, clip_row, export_webdataset, open_dataset, write_metadata
    from ucpe.trajectories import Trajectory
    from ucpe.video import write_video

    camera = Trajectory.orbit(UCM(xfov=150, xi=1.2), degrees=20, frames=4)
    ours = folder / "ours"
    for name in ("one", "two"):
        write_video(ours / "videos" / f"{name}.mp4", np.zeros((4, 16, 32, 3), np.uint8), 16)
    clips = [
        DatasetClip(
            name, ours / "videos" / f"{name}.mp4", "a park", camera, "fisheye", height=16, width=32, scores={"q": 1.0}
        )
        for name in ("one", "two")
    ]
    write_metadata(ours, [clip_row(clip) for clip in clips])

    def read(path: Path) -> None:
        dataset = open_dataset(path)
        for index in range(len(dataset)):
            check_camera(dataset.clip(index).camera)
            assert path.resolve() in dataset.clip(index).video.resolve().parents, "a video outside the dataset"
        with tempfile.TemporaryDirectory() as place:
            export_webdataset(dataset, place)

    panshot = folder / "panshot"
    for inner in ("PanShot/meta-train", "PanShot/pose-train", "PanShot/videos-train", "PanFlow"):
        (panshot / inner).mkdir(parents=True)
    np.save(panshot / "PanShot/pose-train/v-1-0-no_rot_aug_0.npy", camera.c2w[:, :3].numpy())
    shutil.copy(ours / "videos" / "one.mp4", panshot / "PanShot/videos-train/v-1-0-no_rot_aug_0.mp4")
    entry = {"video": "v-1-0-no_rot_aug_0.mp4", "pose": "v-1-0-no_rot_aug_0.npy", "x_fov": 100.0, "xi": 0.0}
    (panshot / "PanShot/meta-train/v.json").write_text(json.dumps([{"videos": [entry]}]))
    caption = {"video": "v-1-0-no_rot_aug_0.mp4", "caption": "a park"}
    (panshot / "PanShot/captioned-train.jsonl").write_text(json.dumps(caption))
    depth = {"video_id": "v", "clip_id": "1", "near_depth": 1.5}
    (panshot / "PanFlow/near_plane_depth-train.jsonl").write_text(json.dumps(depth))
    return [
        Kind("dataset", [ours], read, ("metadata.parquet",)),
        Kind("panshot", [panshot], read, ("*.json", "*.jsonl", "*.npy")),
    ]


def adapters(folder: Path) -> list[Kind]:
    """Adapters in folders and in released checkpoints."""
    from ucpe.adapters import CameraAdapter
    from ucpe.adapters.loading import load_adapter
    from ucpe.adapters.released import RELEASED_GEOMETRY, write_released

    def read(path: Path) -> None:
        adapter = load_adapter(path)
        assert all(value.isfinite().all() for value in adapter.state_dict().values()), "weights are not finite"

    torch.manual_seed(0)
    small = CameraAdapter(width=128, num_blocks=2, base_heads=1, compression=1, heads=1, head_dim=128)
    small.save_pretrained(folder / "ours")
    with_geometry = CameraAdapter(width=128, num_blocks=1, base_heads=1, heads=1, head_dim=128, **RELEASED_GEOMETRY)
    write_released(with_geometry, folder / "released.bin")
    return [Kind("adapter", [folder / "ours"], read), Kind("released adapter", [folder / "released.bin"], read)]


def pictures(folder: Path) -> list[Kind]:
    """Images and videos."""
    from PIL import Image

    from ucpe.reading import open_image
    from ucpe.video import probe_video, read_frames, write_video

    values = np.random.default_rng(0).integers(0, 255, (16, 32, 3), np.uint8)
    images = [folder / f"image{suffix}" for suffix in (".png", ".jpg", ".webp", ".tiff", ".gif", ".bmp")]
    for path in images:
        Image.fromarray(values).save(path)
    Image.fromarray(values[..., 0].astype(np.uint16) * 257).save(folder / "grey.png")
    write_video(folder / "video.mp4", np.stack([values] * 6), 8)

    def read(path: Path) -> None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            info, frames = probe_video(path), read_frames(path)
        assert told or len(frames) == info.frames, f"{len(frames)} frames of {info.frames} without a word"

    return [
        Kind("image", [*images, folder / "grey.png"], open_image),
        Kind("video", [folder / "video.mp4"], read),
    ]


def evaluations(folder: Path) -> list[Kind]:
    """Estimates that other tools stored."""
    from ucpe.evaluation.estimators.base import EstimationFailure
    from ucpe.evaluation.estimators.stored import read_calibration, read_vipe_poses

    np.savez(folder / "poses.npz", data=np.tile(np.eye(4), (5, 1, 1)), inds=np.arange(5))
    (folder / "calibration.json").write_text(json.dumps({"pitch": 1.0, "roll": [0.0] * 5, "xfov": 90.0, "xi": 0.5}))

    def read_poses(path: Path) -> None:
        try:
            read_vipe_poses(path)
        except EstimationFailure as failure:  # counts as a video without an estimate
            raise ValueError(f"{path}: {failure}") from None

    return [
        Kind("stored poses", [folder / "poses.npz"], read_poses),
        Kind("stored calibration", [folder / "calibration.json"], lambda path: read_calibration(path, "ucm", 5)),
    ]


def motions(folder: Path) -> list[Kind]:
    """Labels and up vectors of perspective videos."""
    from ucpe.synthesis.motion.candidates import CameraBench, read_up_vectors

    labels = {"path": "videos/a.mp4", "labels": ["pan-left"], "caption": "a street"}
    (folder / "bench").mkdir()
    (folder / "bench" / "train.jsonl").write_text(json.dumps(labels))
    (folder / "up.jsonl").write_text('{"video": "a.mp4", "up": [0, -1, 0]}\n{"video": "b", "pitch": 3, "roll": [1]}\n')

    def read(path: Path) -> None:
        CameraBench(path, None, {}).entries()  # type: ignore[arg-type]

    return [
        Kind("labels", [folder / "bench"], read),
        Kind("up vectors", [folder / "up.jsonl"], read_up_vectors),
    ]


def pipelines(folder: Path) -> list[Kind]:
    """A pipeline's folder; its weights are links, and only its texts are damaged."""
    from ucpe import desk
    from ucpe.generation.pipeline import CameraPipeline

    model = folder / "desk"
    for path in Path(desk.WEIGHTS).rglob("*"):
        target = model / path.relative_to(desk.WEIGHTS)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".json",) and path.name != "tokenizer.json":
            shutil.copy(path, target)
        elif path.is_file():
            target.symlink_to(path)
    patterns = ("model_index.json", "generation.json", "config.json", "scheduler_config.json")
    return [Kind("pipeline", [model], lambda path: CameraPipeline.from_pretrained(str(path)), patterns, every=4)]


def shots(folder: Path) -> list[Kind]:
    """What the studio keeps."""
    from ucpe.studio.shot import Shot
    from ucpe.studio.store import Store

    store = Store(folder / "studio")
    number = store.new(Shot())

    def read(path: Path) -> None:
        Store(path).open(number)

    return [Kind("studio shot", [folder / "studio"], read, ("shots/*.json",))]
