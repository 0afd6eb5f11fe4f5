"""Poses by structure from motion with pycolmap: `ucpe evaluate --pose colmap` (the default).

Frames are rectified to a pinhole with the commanded lens, whose intrinsics are then held fixed; features are matched in
sequence. Two motions explain most of a flat scene, so maps are built from several starts and on the rotations of the
background (known_rotation.py); the map that agrees with the most matches is kept. A video whose matches a rotation
explains as well has no structure to triangulate: its translation is zero.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ucpe.evaluation.estimators.base import Clip, EstimationFailure, PoseEstimate, PoseEstimator, measured_floor
from ucpe.evaluation.estimators.known_rotation import Fits, average_rotations, build_tracks, solve_centres
from ucpe.evaluation.rectification import MAX_XFOV, rectify_video
from ucpe.files import temporary_folder
from ucpe.lenses import Lens, Pinhole
from ucpe.synthesis.layouts import reduced
from ucpe.synthesis.structure import (
    extract_features,
    largest_map,
    load_pycolmap,
    mapping_options,
    match_features,
    poses_by_number,
    write_picture,
)
from ucpe.trajectories.rotations import nearest_rotation, rotation_angle

MATCH_PIXELS = 0.6
"""Standard deviation in pixels of where features are found."""

INLIER_PIXELS = 1.5
"""Maximum distance in pixels between a match and where a motion puts it."""

UNEXPLAINED_PIXELS, UNEXPLAINED_SHARE, EXPLAINED = 3.0, 0.02, 0.8
"""Where a rotation fits as well as a map, the map is believed on two conditions: matches more than this many pixels
from where the rotation puts them are at least this share of all, and the map explains at least this share of them."""

CONVINCING = 0.99
"""Minimum share of agreeing matches for an estimate of all frames to be accepted without further starts."""

REFINEMENTS = 3
"""Number of rounds of triangulation and adjustment, starting from poses on the background's rotations."""

ADJUSTMENT_STEPS, ADJUSTMENT_TOLERANCE = 100, 1e-6
"""Maximum number of steps of an adjustment, and the relative decrease of its cost at which it ends."""

MIN_TURN = 5.0
"""Minimum turn in degrees between two frames for them to say something about the lens: without a turn, another lens and
another depth of the scene look the same."""

LENS_STEPS, LENS_RANGE = 20, 0.6
"""Number of steps in which the lens of a turning camera is found, and the largest distortion and logarithm of a factor
on the focal length that are believed."""

NEAR_PERCENTILE = 25
"""Percentile of the depths seen by a frame that is its near-plane depth (supplement A.2)."""


@dataclass(frozen=True)
class ColmapSettings:
    """What determines the result."""

    seeds: tuple[int, ...] = (0, 1, 2)
    """Random seeds of the mapper, one for each start; the map with the most frames and agreeing matches is kept."""
    angles: tuple[float, ...] = (1.0, 4.0, 8.0)
    """Minimum triangulation angle in degrees of the first pair of each start."""
    overlap: int = 10
    """Number of next frames that each frame is matched with, besides those a power of two ahead."""
    keyframe_seconds: float | None = 0.25
    """Seconds between the frames that are placed; poses between them are interpolated. None places every frame."""
    min_keyframes: int = 21
    """Minimum number of frames to place, even if they are closer together; fewer only in shorter videos."""
    max_height: int = 480
    """Frames higher than this many pixels are reduced to it."""
    max_features: int = 1200
    enough_features: int = 600
    """If the median frame has fewer features, all frames are looked at again at twice their size, for finer ones."""
    max_xfov: float = MAX_XFOV
    """Maximum horizontal field of view in degrees of rectified views."""
    seconds: int = 300
    """Time limit of one mapping, in seconds."""
    threads: int = 1
    free_lens: bool = False
    """Whether to estimate the horizontal field of view that the rectified views have, whatever lens was commanded."""


FLOOR = Path(__file__).parent / "colmap_floor.json"
"""Own error of the default settings, measured on rendered worlds."""


class PairMatches(NamedTuple):
    """Matches between two frames that agree on an essential matrix."""

    first: int
    second: int
    before: np.ndarray  # (M, 3) unit rays
    after: np.ndarray  # (M, 3)
    essential: np.ndarray  # (3, 3)
    features: np.ndarray  # (M, 2) indices of the matched features


class ColmapEstimator(PoseEstimator):
    """Structure from motion with known intrinsics."""

    name = "colmap"

    def __init__(self, settings: ColmapSettings | None = None):
        pycolmap = load_pycolmap("estimating poses with COLMAP")
        if threading.current_thread() is threading.main_thread():
            # Once loaded, the library answers SIGTERM with a native stack trace.
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        self.settings = settings or ColmapSettings()
        self.version = pycolmap.__version__

    def describe(self) -> dict[str, Any]:
        """Version and settings."""
        settings = asdict(self.settings)
        settings.pop("threads")
        return {"name": self.name, "pycolmap": self.version, **settings}

    def floor(self, protocol: str) -> dict[str, float] | None:
        """The estimator's own error on rendered worlds; reference videos say more."""
        return measured_floor(FLOOR, protocol)

    def estimate(self, clip: Clip, lens: Lens) -> PoseEstimate:
        """Poses of the frames that structure from motion could place."""
        if len(clip.frames) < 2:
            raise EstimationFailure("motion needs at least two frames")
        chosen = keyframes(clip.times, self.settings.keyframe_seconds, self.settings.min_keyframes)
        pictures = np.stack([reduced(clip.frames[index], self.settings.max_height) for index in chosen])
        lens = lens[torch.from_numpy(chosen)] if lens.batch_shape else lens
        frames, pinhole, valid = rectify_video(pictures, lens, self.settings.max_xfov)
        height, width = frames.shape[1:3]
        with temporary_folder() as workspace:
            counts = self._match(workspace, frames, valid, pinhole)
            pairs, rays = _read_matches(workspace / "matches.db", pinhole, height, width)
            if not pairs:
                raise EstimationFailure(
                    f"no two frames could be matched (median {np.median(counts):.0f} features per frame)"
                )
            pixel = 1 / float(pinhole.intrinsics(height, width)[0, 0])
            estimate = self._estimate(workspace, pairs, rays, len(frames), pixel)
        if self.settings.free_lens and estimate.details["method"] == "rotation only":
            estimate.details["measured_xfov"] = xfov_of_turns(pairs, estimate, pixel, width / 2 * pixel)
        estimate.frames, estimate.looked_at = chosen[estimate.frames], len(chosen)
        estimate.details["xfov"] = round(float(pinhole.xfov(height, width)), 6)
        return estimate

    def _estimate(
        self, workspace: Path, pairs: list[PairMatches], rays: dict[int, np.ndarray], frames: int, pixel: float
    ) -> PoseEstimate:
        """The estimate that agrees with the most matches: a rotation, a map, or a map on the background's rotations."""
        generator, tolerance = np.random.default_rng(self.settings.seeds[0]), INLIER_PIXELS * pixel
        fits = {pair[:2]: consensus_rotation(pair.before, pair.after, tolerance, generator) for pair in pairs}
        turned = _rotation_estimate(fits, frames) if prefers_rotation(pairs, fits, MATCH_PIXELS * pixel) else None
        if turned is not None and unexplained(pairs, fits, pixel)[1] < UNEXPLAINED_SHARE:
            return turned  # whatever a map says
        starts = list(zip(self.settings.seeds, self.settings.angles))
        background = _background_poses(pairs, rays, fits, frames, pixel)
        attempts: list[Callable[[], PoseEstimate | None]]
        attempts = [] if background is None else [partial(self._refined, workspace, background)]
        attempts += [partial(self._map, workspace, *start) for start in (starts[:1] if turned else starts)]
        best: PoseEstimate | None = None
        for attempt in attempts:
            candidate = attempt()
            if candidate is None:
                continue
            candidate.details["agreement"] = round(epipolar_agreement(candidate, pairs, tolerance), 4)
            if best is None or _quality(candidate) > _quality(best):
                best = candidate
            if _quality(best) >= (frames, CONVINCING):
                break
        if turned is not None:
            return best if best is not None and explains_the_rest(best, pairs, fits, pixel) else turned
        if best is None:
            raise EstimationFailure("no initial pair could be triangulated from any start")
        return best

    def _match(self, workspace: Path, frames: np.ndarray, valid: np.ndarray, pinhole: Pinhole) -> np.ndarray:
        """Extract and match features; returns the number of features of every frame."""
        import cv2
        import pycolmap

        images, masks, database = workspace / "images", workspace / "masks", workspace / "matches.db"
        images.mkdir()
        masks.mkdir()
        for index, (frame, seen) in enumerate(zip(frames, valid)):
            name = write_picture(images, index, frame)
            eroded = cv2.erode(seen.astype(np.uint8) * 255, np.ones((5, 5), np.uint8), borderValue=255)
            cv2.imwrite(str(masks / f"{name}.png"), eroded)
        matrix = pinhole.intrinsics(*frames.shape[1:3])
        camera = (matrix[0, 0], matrix[1, 1], matrix[0, 2], matrix[1, 2])
        parameters = ",".join(f"{float(value):.9g}" for value in camera)
        limits: dict[str, Any] = {"max_features": self.settings.max_features, "threads": self.settings.threads}
        for enlarged in (False, True):
            database.unlink(missing_ok=True)
            extract_features(database, images, "PINHOLE", parameters, masks=masks, enlarged=enlarged, **limits)
            with pycolmap.Database.open(database) as opened:
                ids = [image.image_id for image in opened.read_all_images()]
                counts = np.array([opened.num_keypoints_for_image(number) for number in ids])
            if np.median(counts) >= self.settings.enough_features:
                break
        if np.median(counts) < 8:
            raise EstimationFailure(f"too little texture: a median of {np.median(counts):.0f} features per frame")
        match_features(
            database,
            overlap=self.settings.overlap,
            seed=self.settings.seeds[0],
            threads=self.settings.threads,
            homographies=False,  # the two poses of a homography explain a flat scene equally
        )
        return counts

    def _refined(self, workspace: Path, c2w: np.ndarray) -> PoseEstimate | None:
        """Poses (N, 4, 4) after triangulation of all matches and bundle adjustment."""
        import pycolmap

        database, output = workspace / "matches.db", workspace / "refined"
        output.mkdir()
        reconstruction = pycolmap.Reconstruction()
        with pycolmap.Database.open(database) as opened:
            for camera in opened.read_all_cameras():
                reconstruction.add_camera_with_trivial_rig(camera)
            for image in opened.read_all_images():
                pose = np.linalg.inv(c2w[_frame_number(image.name)])[:3]
                plain = pycolmap.Image(name=image.name, camera_id=image.camera_id, image_id=image.image_id)
                reconstruction.add_image_with_trivial_frame(plain, pycolmap.Rigid3d(pose))
        options = self._mapping_options(self.settings.seeds[0], self.settings.angles[0])
        for _ in range(REFINEMENTS):
            load_pycolmap("triangulating")
            reconstruction = pycolmap.triangulate_points(
                reconstruction, database, workspace / "images", output, options=options
            )
            if reconstruction.num_points3D() < 10:
                return None
            self._adjust(reconstruction)
        estimate = self._poses(reconstruction, self.settings.seeds[0])
        estimate.details["method"] = "background"
        return estimate

    def _adjust(self, reconstruction: Any, free_lens: bool = False) -> None:
        """Move all poses and points of a map to where they fit its matches best; if asked, with a radial lens."""
        import pycolmap

        adjustment = pycolmap.BundleAdjustmentOptions()
        adjustment.refine_focal_length = adjustment.refine_extra_params = free_lens
        adjustment.print_summary = False
        adjustment.ceres.loss_function_type = pycolmap.LossFunctionType.CAUCHY
        solver = adjustment.ceres.solver_options
        solver.num_threads, solver.max_num_iterations = self.settings.threads, ADJUSTMENT_STEPS
        solver.function_tolerance = ADJUSTMENT_TOLERANCE
        everything = pycolmap.BundleAdjustmentConfig()
        for image_id in reconstruction.reg_image_ids():
            everything.add_image(image_id)
        everything.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
        pycolmap.create_default_bundle_adjuster(adjustment, everything, reconstruction).solve()

    def _poses(self, reconstruction: Any, seed: int) -> PoseEstimate:
        """Poses of a map, and the horizontal field of view with which it fits best if the settings ask for it."""
        import pycolmap

        estimate = poses_of(reconstruction, seed)
        if not self.settings.free_lens:
            return estimate
        estimate.details["measured_xfov"] = None
        turns = rotation_angle(estimate.c2w[0, :3, :3].T @ estimate.c2w[:, :3, :3])
        if turns.max() >= MIN_TURN:
            camera = next(iter(reconstruction.cameras.values()))
            focal, _, *centre = camera.params
            camera.model, camera.params = pycolmap.CameraModelId.RADIAL, np.array([focal, *centre, 0, 0])
            self._adjust(reconstruction, free_lens=True)
            edges = camera.cam_from_img(np.array([[0, centre[1]], [camera.width, centre[1]]]))
            estimate.details["measured_xfov"] = float(np.degrees(np.abs(np.arctan(edges[:, 0])).sum()))
        return estimate

    def _map(self, workspace: Path, seed: int, angle: float) -> PoseEstimate | None:
        """The largest incremental map, if there is one."""
        places = (workspace / "matches.db", workspace / "images", workspace / f"map-{seed}")
        largest = largest_map(*places, self._mapping_options(seed, angle))
        return None if largest is None else self._poses(largest, seed)

    def _mapping_options(self, seed: int, angle: float) -> Any:
        options = mapping_options(seed, self.settings.threads, hold_lens=True)
        options.mapper.init_min_tri_angle = angle
        # Far points are kept: they pin the rotation that a flat foreground leaves ambiguous.
        options.triangulation.min_angle = options.mapper.filter_min_tri_angle = 0.1
        options.mapper.ba_local_min_tri_angle = 1.0
        options.mapper.filter_max_reproj_error, options.mapper.abs_pose_max_error = 2.0, 4.0
        options.ba_global_frames_ratio = options.ba_global_points_ratio = 1.4
        options.ba_global_max_refinements, options.ba_global_function_tolerance = 2, ADJUSTMENT_TOLERANCE
        options.max_runtime_seconds = self.settings.seconds
        return options


def keyframes(
    times: np.ndarray,  # (N,) seconds
    seconds: float | None,
    minimum: int,
) -> np.ndarray:
    """Numbers (M,) of frames about `seconds` apart, at least `minimum` of them, including the first and the last."""
    count = len(times) if seconds is None else max(round(float(times[-1] - times[0]) / seconds) + 1, minimum)
    return np.unique(np.linspace(0, len(times) - 1, min(len(times), count)).round().astype(int))


def _quality(estimate: PoseEstimate) -> tuple[int, float]:
    return len(estimate.frames), estimate.details["agreement"]


def explains_the_rest(mapped: PoseEstimate, pairs: list[PairMatches], fits: Fits, pixel: float) -> bool:
    """Whether a map explains the matches that rotations leave unexplained; it cannot if these are noise or wrong."""
    left, share = unexplained(pairs, fits, pixel)
    return share >= UNEXPLAINED_SHARE and epipolar_agreement(mapped, left, INLIER_PIXELS * pixel) >= EXPLAINED


def unexplained(pairs: list[PairMatches], fits: Fits, pixel: float) -> tuple[list[PairMatches], float]:
    """The matches that rotations leave unexplained, and their share of all matches."""
    left = []
    for pair in pairs:
        rotation, _ = fits[pair.first, pair.second]
        far = np.linalg.norm(pair.before @ rotation.T - pair.after, axis=1) > UNEXPLAINED_PIXELS * pixel
        left.append(pair._replace(before=pair.before[far], after=pair.after[far]))
    return left, sum(len(pair.before) for pair in left) / sum(len(pair.before) for pair in pairs)


def poses_of(reconstruction: Any, seed: int) -> PoseEstimate:
    """Camera-to-world poses of the registered frames, in near-plane depths of the map where it has any depth."""
    points = {key: point.xyz for key, point in reconstruction.points3D.items()}
    depths = []
    for image in reconstruction.images.values():
        seen = [points[point.point3D_id] for point in image.points2D if point.has_point3D()]
        if image.has_pose and seen:
            distances = np.linalg.norm(np.array(seen) - image.projection_center(), axis=1)
            depths.append(np.percentile(distances, NEAR_PERCENTILE))
    found = poses_by_number(reconstruction)
    c2w = torch.from_numpy(np.stack(list(found.values())))
    if depths:
        c2w[:, :3, 3] /= float(np.median(depths))
    unit = 1.0 if depths else None
    return PoseEstimate(c2w, np.array(list(found)), unit, details={"method": "mapping", "seed": seed})


def _background_poses(
    pairs: list[PairMatches], rays: dict[int, np.ndarray], fits: Fits, frames: int, pixel: float
) -> np.ndarray | None:
    """Poses (N, 4, 4) on the rotations that explain most matches of every pair: right where there is a background."""
    rotation = average_rotations(fits, frames)
    tracks = build_tracks([(pair.first, pair.second, pair.features) for pair in pairs], rays)
    if rotation is None or len(tracks.ray) < 6 * frames:
        return None
    start = max(pairs, key=lambda pair: _parallax(pair, fits[pair.first, pair.second][0], 10 * pixel))
    c2w = np.tile(np.eye(4), (frames, 1, 1))
    c2w[:, :3, :3] = rotation
    c2w[:, :3, 3] = solve_centres(tracks, rotation, (start.first, start.second), 2 * MATCH_PIXELS * pixel)
    return c2w if np.isfinite(c2w).all() else None


def _parallax(pair: PairMatches, rotation: np.ndarray, largest: float) -> float:
    """Motion in radians that a rotation leaves unexplained, summed over a pair's matches, each at most `largest`."""
    return float(np.minimum(np.linalg.norm(pair.before @ rotation.T - pair.after, axis=1), largest).sum())


def epipolar_agreement(estimate: PoseEstimate, pairs: list[PairMatches], tolerance: float) -> float:
    """Share of all matches whose rays meet, within `tolerance` radians, under the estimated motion."""
    poses = dict(zip(estimate.frames.tolist(), estimate.c2w.numpy()))
    agreeing = total = 0
    for pair in pairs:
        total += len(pair.before)
        if pair.first in poses and pair.second in poses:
            motion = np.linalg.inv(poses[pair.second]) @ poses[pair.first]
            essential = np.cross(np.eye(3), motion[:3, 3]).T @ motion[:3, :3]
            agreeing += int((epipolar_distance(essential, pair.before, pair.after) < tolerance).sum())
    return agreeing / max(total, 1)


def epipolar_distance(
    essential: np.ndarray,  # (3, 3)
    before: np.ndarray,  # (M, 3)
    after: np.ndarray,  # (M, 3)
) -> np.ndarray:
    """Sampson distance (M,) in radians of ray pairs from an epipolar geometry; zero motion explains nothing."""
    forward, backward = before @ essential.T, after @ essential
    size = np.sqrt((forward * forward).sum(1) + (backward * backward).sum(1))
    product = np.abs((after * forward).sum(1))
    return np.where(size > 1e-12, product / np.maximum(size, 1e-12), np.inf)


def prefers_rotation(pairs: list[PairMatches], fits: Fits, deviation: float) -> bool:
    """Whether a rotation describes most pairs of distant frames better than a moving camera does.

    Decided by Torr's geometric robust information criterion, with feature positions off by `deviation` radians.
    """
    gaps = np.array([pair.second - pair.first for pair in pairs])
    votes = []
    for pair in (pair for pair, gap in zip(pairs, gaps) if gap >= np.percentile(gaps, 60)):
        rotation, _ = fits[pair.first, pair.second]
        turned = np.linalg.norm(pair.before @ rotation.T - pair.after, axis=1) / deviation
        moved = epipolar_distance(pair.essential, pair.before, pair.after) / deviation
        count = len(pair.before)
        as_rotation = np.minimum(turned**2, 4).sum() + 2 * count * np.log(4) + 3 * np.log(4 * count)
        as_motion = np.minimum(moved**2, 2).sum() + 3 * count * np.log(4) + 5 * np.log(4 * count)
        votes.append(as_rotation < as_motion)
    return bool(np.mean(votes) > 0.5)


def _rotation_estimate(fits: Fits, frames: int) -> PoseEstimate:
    """Poses that only rotate, each chained to the earliest frame it was matched with."""
    start = min(first for first, _ in fits)
    world = {start: np.eye(3)}
    for frame in range(start + 1, frames):
        before = [first for first in world if (first, frame) in fits]
        if before:
            world[frame] = world[before[0]] @ fits[before[0], frame][0].T
    c2w = np.tile(np.eye(4), (len(world), 1, 1))
    c2w[:, :3, :3] = np.stack(list(world.values()))
    return PoseEstimate(torch.from_numpy(c2w), np.array(list(world)), 1.0, details={"method": "rotation only"})


def consensus_rotation(
    before: np.ndarray,  # (M, 3) unit rays
    after: np.ndarray,  # (M, 3) unit rays
    tolerance: float,
    generator: np.random.Generator,
    trials: int = 64,
) -> tuple[np.ndarray, float]:
    """Rotation (3, 3) that turns `before` into `after` for most rays within `tolerance` radians, and their share."""
    best = np.zeros(len(before), bool)
    for _ in range(trials):
        chosen = generator.integers(len(before), size=2)
        rotation = nearest_rotation(after[chosen].T @ before[chosen])
        inliers = np.linalg.norm(before @ rotation.T - after, axis=1) < tolerance
        if inliers.sum() > best.sum():
            best = inliers
    for _ in range(3):
        if best.sum() < 2:
            return np.eye(3), 0.0
        rotation = nearest_rotation(after[best].T @ before[best])
        best = np.linalg.norm(before @ rotation.T - after, axis=1) < tolerance
    return rotation, float(best.mean())


def xfov_of_turns(pairs: list[PairMatches], estimate: PoseEstimate, pixel: float, edge: float) -> float | None:
    """Horizontal field of view in degrees with which rotations explain pairs best; None if they turn too little.

    The rays get another focal length and radial distortion, by least squares that ignore wrong matches; `edge` is the
    tangent at the edge of the image.
    """
    poses = dict(zip(estimate.frames.tolist(), estimate.c2w[:, :3, :3]))
    angles = {
        pair[:2]: float(rotation_angle(poses[pair.first].mT @ poses[pair.second]))
        for pair in pairs
        if pair.first in poses and pair.second in poses
    }
    turning = [pair for pair in pairs if angles.get(pair[:2], 0) >= MIN_TURN]
    turning = sorted(turning, key=lambda pair: -len(pair.before) * angles[pair[:2]])[:12]
    if not turning:
        return None
    lens, step = np.zeros(2), 1e-4
    weights = [np.ones(len(pair.before)) for pair in turning]
    for _ in range(LENS_STEPS):
        normal, gradient = np.zeros((2, 2)), np.zeros(2)
        for index, pair in enumerate(turning):
            now, *moved = (
                _unexplained_by_turning(pair, lens + change, weights[index]) / pixel
                for change in (np.zeros(2), np.array([step, 0]), np.array([0, step]))
            )
            weights[index] = 1 / (1 + (now**2).sum(1) / INLIER_PIXELS**2)
            slope = np.stack([(other - now) / step for other in moved], -1)  # (M, 3, 2)
            normal += np.einsum("m,mik,mil->kl", weights[index], slope, slope)
            gradient += np.einsum("m,mik,mi->k", weights[index], slope, now)
        lens = np.clip(lens - np.linalg.lstsq(normal, gradient)[0], -LENS_RANGE, LENS_RANGE)
    if np.abs(lens).max() >= LENS_RANGE:
        return None
    return float(2 * np.degrees(np.arctan(edge * (1 + lens[1] * edge**2) * np.exp(-lens[0]))))


def _unexplained_by_turning(pair: PairMatches, lens: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What the best rotation leaves of a pair (M, 3), in units of the image plane, through another lens.

    `lens` is the logarithm of a factor on the focal length, and a radial distortion.
    """
    both = []
    for rays in (pair.before, pair.after):
        tangents = rays[:, :2] / rays[:, 2:]
        bent = tangents * (1 + lens[1] * (tangents**2).sum(1, keepdims=True)) * np.exp(-lens[0])
        straight = np.pad(bent, ((0, 0), (0, 1)), constant_values=1.0)
        both.append(straight / np.linalg.norm(straight, axis=1, keepdims=True))
    before, after = both
    rotation = nearest_rotation((after * weight[:, None]).T @ before)
    return (before @ rotation.T - after) * np.exp(lens[0])


def _read_matches(
    database: Path, pinhole: Pinhole, height: int, width: int
) -> tuple[list[PairMatches], dict[int, np.ndarray]]:
    """Verified matches of every pair as rays, in order of frames, and the rays of all features of every frame."""
    import pycolmap

    matrix = np.linalg.inv(pinhole.intrinsics(height, width).double().numpy())
    with pycolmap.Database.open(database) as opened:
        images = {image.image_id: _frame_number(image.name) for image in opened.read_all_images()}
        rays = {key: _rays(opened.read_keypoints(key)[:, :2], matrix) for key in images}
        ids, geometries = opened.read_two_view_geometries()
        pairs = []
        for pair_id, geometry in zip(ids, geometries):
            matches, essential = np.asarray(geometry.inlier_matches), np.asarray(geometry.E)
            if len(matches) < 8 or essential.shape != (3, 3):
                continue
            left, right = pycolmap.pair_id_to_image_pair(pair_id)
            if images[left] > images[right]:
                left, right, matches, essential = right, left, matches[:, ::-1], essential.T
            before, after = rays[left][matches[:, 0]], rays[right][matches[:, 1]]
            pairs.append(PairMatches(images[left], images[right], before, after, essential, matches))
    by_frame = {images[key]: directions for key, directions in rays.items()}
    return sorted(pairs, key=lambda pair: pair[:2]), by_frame


def _rays(pixels: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    rays = np.pad(pixels, ((0, 0), (0, 1)), constant_values=1.0) @ inverse.T
    return rays / np.linalg.norm(rays, axis=1, keepdims=True)


def _frame_number(name: str) -> int:
    return int(name.removesuffix(".png"))
