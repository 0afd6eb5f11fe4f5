"""Where the poses of perspective videos come from: ViPE's result files, or structure from motion with pycolmap."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from ucpe.files import file_fingerprint
from ucpe.trajectories import DEFAULT_LENS, Trajectory


class PoseBackend(Protocol):
    """Camera motion of a video, in a world of any frame and scale."""

    name: str

    def poses(self, video: str, file: Path | None, fps: float | None) -> Trajectory:
        """Poses of all frames of a video named `video`; ValueError says why there are none.

        `file` is the video if it is at hand; `fps` replaces its frame rate.
        """

    def describe(self, video: str, file: Path | None) -> list[Any]:
        """What determines the poses of a video, plain enough for JSON."""


class VipeResults:
    """Results of `vipe infer`: `pose/NAME.npz` in a folder, or NAME.npz in it."""

    name = "vipe"

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise ValueError(f"no folder {folder} with ViPE results")

    def poses(self, video: str, file: Path | None, fps: float | None) -> Trajectory:
        """The stored poses of a video."""
        path = self._result(video)
        if path is None:
            raise ValueError(f"no ViPE result pose/{video}.npz")
        return Trajectory.load(path, fps=_frame_rate(video, file, fps), format="vipe")

    def describe(self, video: str, file: Path | None) -> list[Any]:
        """The result file."""
        path = self._result(video)
        return [file_fingerprint(path)] if path else []

    def _result(self, video: str) -> Path | None:
        places = (self.folder / "pose" / f"{video}.npz", self.folder / f"{video}.npz")
        return next((path for path in places if path.is_file()), None)


class Pycolmap:
    """Incremental structure from motion of every few frames; poses between them are interpolated.

    A given field of view (`xfov`, degrees, of a pinhole) is held; otherwise focal length and distortion are estimated
    too, which needs longer videos with more depth.
    """

    name = "pycolmap"

    def __init__(
        self,
        xfov: float | None = None,
        keyframe_fps: float = 4.0,
        min_registered: float = 0.9,
        seed: int = 0,
        threads: int = 1,
    ):
        try:
            import pycolmap
        except ImportError:
            raise ValueError("poses from pycolmap need it: pip install 'ucpe[colmap]'") from None
        pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value
        if xfov is not None and not 0 < xfov < 180:
            raise ValueError(f"xfov of a pinhole must be in (0, 180) degrees, got {xfov:g}")
        self.xfov, self.keyframe_fps, self.min_registered = xfov, keyframe_fps, min_registered
        self.seed, self.threads = seed, threads

    def poses(self, video: str, file: Path | None, fps: float | None) -> Trajectory:
        """Poses of the frames between the first and the last that could be placed."""
        from ucpe.trajectories.interpolation import interpolate_poses

        if file is None:
            raise ValueError("its video is not there to be estimated from")
        rate = _frame_rate(video, file, fps)
        with tempfile.TemporaryDirectory(prefix="ucpe-motion-") as folder:
            images = Path(folder) / "images"
            images.mkdir()
            numbers = _write_keyframes(file, images, max(round(rate / self.keyframe_fps), 1))
            with _quiet():
                found = self._map(Path(folder), images)
        if len(found) < max(self.min_registered * len(numbers), 2):
            raise ValueError(f"only {len(found)} of {len(numbers)} keyframes could be placed")
        frames = torch.tensor(sorted(found), dtype=torch.float64)
        c2w = torch.from_numpy(np.stack([found[number] for number in sorted(found)]))
        every = torch.arange(int(frames[0]), int(frames[-1]) + 1, dtype=torch.float64)
        return Trajectory(interpolate_poses(c2w, frames, every), DEFAULT_LENS, rate)

    def describe(self, video: str, file: Path | None) -> list[Any]:
        """Settings and the video."""
        return [
            self.xfov,
            self.keyframe_fps,
            self.min_registered,
            self.seed,
            file_fingerprint(file) if file else None,
        ]

    def _map(self, folder: Path, images: Path) -> dict[int, np.ndarray]:
        """Camera-to-world poses (4, 4) by frame number."""
        import pycolmap

        database = folder / "matches.db"
        extraction = pycolmap.FeatureExtractionOptions()
        extraction.num_threads, extraction.use_gpu, extraction.sift.max_num_features = self.threads, False, 2048
        reader = pycolmap.ImageReaderOptions()
        reader.camera_model = "SIMPLE_RADIAL"
        if self.xfov is not None:
            height, width = _picture_size(images)
            focal = width / 2 / math.tan(math.radians(self.xfov) / 2)
            reader.camera_params = f"{focal:.9g},{width / 2:.9g},{height / 2:.9g},0"
        pycolmap.extract_features(
            database,
            images,
            camera_mode=pycolmap.CameraMode.SINGLE,
            reader_options=reader,
            extraction_options=extraction,
            device=pycolmap.Device.cpu,
        )
        matching = pycolmap.FeatureMatchingOptions()
        matching.num_threads, matching.use_gpu = self.threads, False
        verification = pycolmap.TwoViewGeometryOptions()
        verification.ransac.random_seed = self.seed
        pairing = pycolmap.SequentialPairingOptions()
        pairing.num_threads = self.threads
        pycolmap.match_sequential(database, matching, pairing, verification, device=pycolmap.Device.cpu)
        options = pycolmap.IncrementalPipelineOptions()
        options.random_seed = options.mapper.random_seed = options.triangulation.random_seed = self.seed
        options.num_threads = options.mapper.num_threads = self.threads
        options.multiple_models, options.min_model_size, options.extract_colors = False, 3, False
        if self.xfov is not None:
            options.ba_refine_focal_length = options.ba_refine_extra_params = False
            options.mapper.abs_pose_refine_focal_length = options.mapper.abs_pose_refine_extra_params = False
        options.mapper.init_min_tri_angle, options.mapper.init_min_num_inliers = 4.0, 50
        options.triangulation.min_angle = options.mapper.filter_min_tri_angle = 0.5
        maps = pycolmap.incremental_mapping(database, images, folder, options)
        best = max(maps.values(), key=lambda found: found.num_reg_images(), default=None)
        return {} if best is None else _registered(best)


def _registered(reconstruction: Any) -> dict[int, np.ndarray]:
    found = {}
    for image in reconstruction.images.values():
        if image.has_pose:
            pose = np.eye(4)
            pose[:3] = image.cam_from_world().inverse().matrix()
            found[int(Path(image.name).stem)] = pose
    return found


def _write_keyframes(video: Path, folder: Path, step: int) -> list[int]:
    """Every `step`-th frame and the last as pictures named by their frame numbers, which are returned."""
    import cv2

    from ucpe.video import read_video

    def write(frame: Any) -> int:
        cv2.imwrite(str(folder / f"{frame.index:08d}.png"), np.ascontiguousarray(frame.rgb[..., ::-1]))
        return frame.index

    numbers, last = [], None
    for last in read_video(video):
        if last.index % step == 0:
            numbers.append(write(last))
    if last is not None and last.index % step:
        numbers.append(write(last))
    return numbers


def _picture_size(folder: Path) -> tuple[int, int]:
    """Height and width of the first picture of a folder."""
    import cv2

    picture = cv2.imread(str(min(folder.iterdir())))
    assert picture is not None
    return picture.shape[0], picture.shape[1]


def _frame_rate(video: str, file: Path | None, fps: float | None) -> float:
    if fps is None and file is None:
        raise ValueError(f"frame rate of {video} unknown: put its video beside the labels or give fps")
    from ucpe.video import probe_video

    return fps if fps is not None else probe_video(file).fps  # type: ignore[arg-type]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the library's progress lines off the screen."""
    import pycolmap

    with pycolmap.ostream(stdout=True, stderr=True), contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        yield
