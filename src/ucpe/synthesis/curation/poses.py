"""Camera motion of 360 degree footage: panoramic structure from motion on keyframes, then localisation of every frame.

Keyframes are mapped by pycolmap with its EQUIRECTANGULAR camera; all other frames are placed against that map, and
everything is adjusted together. Where no map places a frame, tracking is lost and the footage is split.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from ucpe.synthesis.structure import load_pycolmap
from ucpe.trajectories.rotations import nearest_rotation

SEAM = 32
"""Number of columns repeated beyond the left and right border, so that features on the seam are found."""

CONTRAST = 0.02
"""Minimum contrast of a SIFT feature: half of OpenCV's default, as skies and walls have little."""

MIN_ANGLE = 0.05
"""Minimum angle in degrees between two rays whose point enters a map. It is small enough for far points: they pin the
rotation, which the ground alone leaves vague."""

MIN_MAP = 3
"""Minimum number of keyframes in a map."""

STARTS = 3
"""Number of pairs of keyframes that are tried as the start of a map."""

FEWEST_MOVED, SHARE_MOVED = 3, 0.1
"""Minimum number and share of keyframe pairs that must show parallax: in a single pair, wrong matches may fake it."""

CLEAR_PARALLAX = 2.0
"""Parallax below this many times `min_parallax` leaves doubt whether the camera moves or only turns. Keyframes are then
taken closer together before that is decided."""

MAX_PARALLAX = 10.0
"""Pixels beyond which more parallax does not make two keyframes a better start of a map."""

PARALLAX_PERCENTILE = 95
"""Parallax in one heading is this percentile of the motion of its matches that a rotation leaves unexplained."""

HEADINGS = 8
"""Number of headings around the vertical in which parallax is measured. Half of them must show it: when the camera
moves, everything around it shifts, while people who walk past a standing camera appear in few."""

FEATURE_ERROR = 0.1
"""Typical distance in pixels between where a feature is and where it was found. In the last adjustment, features that
are further off count less."""

PATCH = 15
"""Side in pixels of the patch around a feature that is looked for in another frame, to place the feature exactly."""

MAX_CORRECTION = 1.5
"""Maximum distance in pixels by which this moves a feature; beyond it, another feature was found."""

MAX_RETURN = 0.3
"""Maximum distance in pixels by which a patch, followed to another frame and back, may miss its place."""


@dataclass(frozen=True)
class Track:
    """Poses of frames start, ..., stop - 1 in one world of any scale; x right, y down, z forward.

    The centre of an equirectangular frame looks along +z. A camera that only turns has one and the same position in
    all frames, exactly.
    """

    start: int
    stop: int
    c2w: np.ndarray  # (stop - start, 4, 4) float64
    error: float
    """Mean distance in degrees between features and where the map puts them; NaN from a tracker that does not say."""

    @property
    def moves(self) -> bool:
        """Whether the camera changes its position."""
        return bool((self.c2w[:, :3, 3] != self.c2w[0, :3, 3]).any())


class PoseTracker(Protocol):
    """Finds the camera motion of panoramic footage."""

    def track(self, frames: np.ndarray, seed: int = 0) -> list[Track]:
        """Tracks, in order and without overlap, of equirectangular frames (N, H, W, 3) uint8; none where it is lost."""


@dataclass(frozen=True)
class SphericalMapper:
    """Panoramic structure from motion with pycolmap; distances are in pixels of a panorama `width` wide."""

    width: int = 1280
    """Wider frames are reduced to this."""
    keyframe_spacing: int = 5
    """Frames from one keyframe to the next; half as many where parallax is weak."""
    overlap: int = 3
    """Number of next keyframes that each keyframe is matched with, besides those a power of two ahead."""
    neighbours: int = 2
    """Number of keyframes before a frame, and after it, against which the frame is localised."""
    features: int = 2000
    """Maximum number of features per frame."""
    ratio: float = 0.8
    """Maximum ratio between the distances of the best and the second best match of a feature."""
    inlier_distance: float = 3.0
    """Maximum distance in pixels between a feature and where a motion puts it."""
    min_inliers: int = 30
    """Minimum number of agreeing matches between two keyframes, and between a frame and the map."""
    min_parallax: float = 1.5
    """Parallax in pixels below which the camera counts as only turning."""
    min_frames: int = 2
    """Tracks with fewer frames are dropped."""
    refine: bool = True
    """Adjust all frames and the map together at the end."""

    def track(self, frames: np.ndarray, seed: int = 0) -> list[Track]:
        """Tracks of equirectangular frames (N, H, W, 3) uint8; the same seed gives the same tracks."""
        frames = check_frames(frames)
        colmap = load_pycolmap("tracking a panoramic camera")
        if "EQUIRECTANGULAR" not in colmap.CameraModelId.__members__:
            raise ValueError(f"pycolmap {colmap.__version__} has no EQUIRECTANGULAR camera: pip install -U pycolmap")
        seen = [self._detect(frame) for frame in frames]
        width = min(self.width, frames.shape[2])
        height = round(frames.shape[1] * width / frames.shape[2])
        camera = colmap.Camera.create_from_model_name(1, "EQUIRECTANGULAR", 1.0, width, height)
        job = _Job(self, colmap, camera, seen, seed)
        if not job.is_clear():
            job.look_closer()
        found: list[tuple[int, _Placed]] = []
        for group, component in enumerate(job.components()):
            turning = job.parallax(component) < self.min_parallax
            found += job.turn(component, group) if turning else job.map(component, group)
        placed = dict(sorted(found, key=lambda pose: pose[1].support))
        return _split(placed, self.min_frames)

    def _detect(self, frame: np.ndarray) -> Features:
        """SIFT features of a frame, on the working size and across the seam."""
        import cv2

        grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
        if grey.shape[1] > self.width:
            size = (self.width, round(grey.shape[0] * self.width / grey.shape[1]))
            grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
        width = grey.shape[1]
        padded = np.pad(grey, ((0, 0), (SEAM, SEAM)), mode="wrap")
        sift = cv2.SIFT_create(self.features, contrastThreshold=CONTRAST)  # type: ignore[attr-defined]
        found, descriptors = sift.detectAndCompute(padded, None)
        if not found:
            return Features(np.zeros((0, 2)), np.zeros((0, 128), np.uint8), padded)
        pixels = np.array([point.pt for point in found], np.float64) + np.array([0.5 - SEAM, 0.5])
        inside = (pixels[:, 0] >= 0) & (pixels[:, 0] < width)
        return Features(pixels[inside], descriptors[inside].astype(np.uint8), padded)


class Features(NamedTuple):
    """SIFT features of a frame."""

    pixels: np.ndarray  # (M, 2), the centre of the first pixel at (0.5, 0.5)
    descriptors: np.ndarray  # (M, 128) uint8
    picture: np.ndarray  # (H, W + 2 SEAM) uint8, grey


class _Placed(NamedTuple):
    """Pose of a frame in the world of a map."""

    world: tuple[int, int]
    c2w: np.ndarray  # (4, 4)
    error: float  # degrees
    support: int  # features that agree


class _Motion(NamedTuple):
    """Motion between two keyframes that their matches agree on."""

    matches: np.ndarray  # (M, 2) feature numbers
    second_from_first: Any  # pycolmap.Rigid3d
    parallax: np.ndarray  # (M,) pixels that a rotation leaves unexplained


@dataclass
class _Job:
    """One clip while it is being tracked."""

    options: SphericalMapper
    colmap: Any
    camera: Any
    seen: list[Features]
    seed: int
    rays: list[np.ndarray] = field(init=False)
    keyframes: list[int] = field(init=False)
    tried: set[tuple[int, int]] = field(init=False, default_factory=set)
    motions: dict[tuple[int, int], _Motion] = field(init=False, default_factory=dict)
    first_pairs: set[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.rays = [self.camera.cam_ray_from_img(features.pixels) for features in self.seen]
        last = len(self.seen) - 1
        self.keyframes = sorted({*range(0, last, self.options.keyframe_spacing), last})
        self._connect()
        self.first_pairs = set(self.motions)

    @property
    def pixel(self) -> float:
        """Radians between neighbouring pixels on the equator."""
        return 2 * np.pi / self.camera.width

    def is_clear(self) -> bool:
        """Whether every group of connected keyframes is large enough for a map and has clear parallax."""
        enough = CLEAR_PARALLAX * self.options.min_parallax
        components = self.components()
        return bool(components) and all(len(one) >= MIN_MAP and self.parallax(one) >= enough for one in components)

    def look_closer(self) -> None:
        """Put a keyframe between every two: what is near the camera changes too fast to be matched from afar."""
        between = {(first + second) // 2 for first, second in itertools.pairwise(self.keyframes)}
        self.keyframes = sorted({*self.keyframes, *between})
        self._connect()

    def components(self) -> list[list[int]]:
        """Groups of two or more keyframes that are connected by matches."""
        group = {frame: frame for frame in self.keyframes}
        for first, second in self.motions:
            old, new = group[second], group[first]
            group = {frame: new if name == old else name for frame, name in group.items()}
        found: dict[int, list[int]] = {}
        for frame in self.keyframes:
            found.setdefault(group[frame], []).append(frame)
        return [frames for frames in found.values() if len(frames) > 1]

    def parallax(self, component: list[int]) -> float:
        """Parallax in pixels that enough keyframe pairs of a component reach, among the first pairs or among all."""
        found = {pair: self._parallax_around(pair) for pair in self.motions if pair[0] in component}
        first = [parallax for pair, parallax in found.items() if pair in self.first_pairs]
        return max(_reached_by_enough(list(found.values())), _reached_by_enough(first))

    def turn(self, component: list[int], group: int) -> list[tuple[int, _Placed]]:
        """Poses of a camera that only turns, each frame chained to the keyframe it shares most matches with."""
        turned = {component[0]: _Placed((group, 0), np.eye(4), 0.0, len(self.rays[component[0]]))}
        rest = [frame for frame in range(len(self.seen)) if frame not in component]
        for frame in component[1:] + rest:
            near = [keyframe for keyframe in self._neighbours(frame) if keyframe in turned and keyframe in component]
            linked = {key: self._matched(key, frame) for key in near}
            linked = {key: matches for key, matches in linked.items() if len(matches) >= self.options.min_inliers}
            if not linked:
                continue
            key = max(linked, key=lambda name: len(linked[name]))
            before, after = self.rays[key][linked[key][:, 0]], self.rays[frame][linked[key][:, 1]]
            rotation = fit_rotation(before, after)
            left = np.linalg.norm(before @ rotation.T - after, axis=1)
            agreeing = left < self.options.inlier_distance * self.pixel
            if agreeing.sum() >= self.options.min_inliers:
                c2w = np.eye(4)
                c2w[:3, :3] = turned[key].c2w[:3, :3] @ rotation.T
                error = float(np.degrees(left[agreeing].mean()))
                turned[frame] = _Placed((group, 0), c2w, error, int(agreeing.sum()))
        return list(turned.items())

    def map(self, component: list[int], group: int) -> list[tuple[int, _Placed]]:
        """Poses of all frames that can be placed in the maps of a component."""
        placed: list[tuple[int, _Placed]] = []
        for number, reconstruction in enumerate(self._mapped(component)):
            self._localise(reconstruction)
            if self.options.refine:
                self._adjust(reconstruction)
                self._pinpoint(reconstruction)
                self._adjust(reconstruction)
            reconstruction.update_point_3d_errors()
            placed += _poses(reconstruction, (group, number), self.pixel)
        return placed

    def _mapped(self, component: list[int]) -> Iterator[Any]:
        """Reconstructions of the keyframes of a component; what the first cannot place goes to the next."""
        colmap, left = self.colmap, set(component)
        cache = self._correspondences(component)
        while pairs := [pair for pair in self.motions if left.issuperset(pair)]:
            for start in sorted(pairs, key=self._unexplained, reverse=True)[:STARTS]:
                reconstruction = colmap.Reconstruction()
                self._grow(colmap.IncrementalMapper(cache), reconstruction, start, left)
                if reconstruction.num_reg_images() >= MIN_MAP:
                    break
            else:
                return
            left -= {image_id - 1 for image_id in reconstruction.reg_image_ids()}
            yield reconstruction

    def _correspondences(self, component: list[int]) -> Any:
        """Features and matches of a component's keyframes, as pycolmap's mapper reads them."""
        colmap = self.colmap
        with colmap.Database.open(":memory:") as database:
            database.write_camera(self.camera, use_camera_id=True)
            for frame in component:
                image = colmap.Image(name=f"{frame:08d}", camera_id=1, image_id=frame + 1)
                database.write_image(image, use_image_id=True)
                database.write_keypoints(frame + 1, self.seen[frame].pixels.astype(np.float32))
            for (first, second), motion in self.motions.items():
                if first in component:
                    geometry = colmap.TwoViewGeometry()
                    geometry.config = colmap.TwoViewGeometryConfiguration.CALIBRATED
                    geometry.inlier_matches = motion.matches
                    database.write_two_view_geometry(first + 1, second + 1, geometry)
            return colmap.DatabaseCache.create(database, colmap.DatabaseCacheOptions())

    def _grow(self, mapper: Any, reconstruction: Any, start: tuple[int, int], allowed: set[int]) -> None:
        """Fill a reconstruction from two keyframes on, one keyframe after the other."""
        colmap, limits = self.colmap, self.options
        options, triangulation = colmap.IncrementalMapperOptions(), colmap.IncrementalTriangulatorOptions()
        options.random_seed = triangulation.random_seed = self.seed
        options.num_threads = 1
        options.abs_pose_min_num_inliers = limits.min_inliers
        options.abs_pose_max_error = options.filter_max_reproj_error = limits.inlier_distance
        options.filter_min_tri_angle = triangulation.min_angle = MIN_ANGLE
        options.ba_local_min_tri_angle = 1.0
        adjustment = self._adjustment()

        def refine_all() -> None:
            mapper.iterative_global_refinement(5, 5e-4, options, adjustment, triangulation)

        mapper.begin_reconstruction(reconstruction)
        first, second = (frame + 1 for frame in start)
        mapper.register_initial_image_pair(options, first, second, self.motions[start].second_from_first)
        for image_id in (first, second):
            mapper.triangulate_image(triangulation, image_id)
        if reconstruction.num_points3D() < limits.min_inliers:
            mapper.end_reconstruction(False)
            return
        refine_all()
        while True:
            following = [name for name in mapper.find_next_images(options, False) if name - 1 in allowed]
            added = next((name for name in following if mapper.register_next_image(options, name)), None)
            if added is None:
                break
            mapper.triangulate_image(triangulation, added)
            mapper.iterative_local_refinement(2, 1e-3, options, adjustment, triangulation, added)
        refine_all()
        mapper.end_reconstruction(False)

    def _adjustment(self) -> Any:
        adjustment = self.colmap.BundleAdjustmentOptions()
        adjustment.print_summary = False
        adjustment.ceres.loss_function_type = self.colmap.LossFunctionType.CAUCHY
        solver = adjustment.ceres.solver_options
        solver.num_threads, solver.max_num_iterations, solver.function_tolerance = 1, 30, 1e-5
        return adjustment

    def _localise(self, reconstruction: Any) -> None:
        """Place all frames that the map does not hold yet, by the map's points that they share with keyframes."""
        colmap, options = self.colmap, self.options
        points = {}
        for image in reconstruction.images.values():
            if image.has_pose:
                points[image.image_id - 1] = np.array(
                    [point.point3D_id if point.has_point3D() else -1 for point in image.points2D], np.int64
                )
        estimation, refinement = colmap.AbsolutePoseEstimationOptions(), colmap.AbsolutePoseRefinementOptions()
        estimation.ransac.random_seed, estimation.ransac.max_error = self.seed, options.inlier_distance
        for frame in range(len(self.seen)):
            if frame in points:
                continue
            links = []
            for keyframe in self._neighbours(frame):
                if keyframe in points:
                    known, feature = self._matched(keyframe, frame).T
                    links.append(np.stack([feature, points[keyframe][known]], 1))
            linked = np.unique(np.concatenate([np.zeros((0, 2), np.int64), *links]), axis=0)
            linked = linked[linked[:, 1] >= 0]
            if len(linked) < options.min_inliers:
                continue
            pixels = self.seen[frame].pixels[linked[:, 0]]
            places = np.array([reconstruction.points3D[point].xyz for point in linked[:, 1]])
            found = colmap.estimate_and_refine_absolute_pose(pixels, places, self.camera, estimation, refinement)
            if found is None or found["num_inliers"] < options.min_inliers:
                continue
            features = colmap.Point2DList([colmap.Point2D(pixel) for pixel in self.seen[frame].pixels])
            image = colmap.Image(name=f"{frame:08d}", points2D=features, camera_id=1, image_id=frame + 1)
            reconstruction.add_image_with_trivial_frame(image, found["cam_from_world"])
            used: set[int] = set()
            for feature, point in linked[found["inlier_mask"]].tolist():
                if feature not in used:
                    reconstruction.add_observation(point, colmap.TrackElement(frame + 1, feature))
                    used.add(feature)

    def _adjust(self, reconstruction: Any) -> None:
        """Adjust all poses and points together."""
        colmap, options = self.colmap, self._adjustment()
        options.ceres.loss_function_scale = FEATURE_ERROR
        options.ceres.solver_options.function_tolerance = 1e-6
        everything = colmap.BundleAdjustmentConfig()
        for image_id in reconstruction.reg_image_ids():
            everything.add_image(image_id)
        everything.fix_gauge(colmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
        colmap.create_default_bundle_adjuster(options, everything, reconstruction).solve()

    def _pinpoint(self, reconstruction: Any) -> None:
        """Place the features of each map point exactly: where the patch around the feature in mid-track is seen again.

        Features for which it is not seen again leave the map, unless they are more than half of a frame's features.
        """
        again: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for point in reconstruction.points3D.values():
            track = sorted((element.image_id - 1, element.point2D_idx) for element in point.track.elements)
            own, feature = track.pop(len(track) // 2)
            for frame, other in track:
                again.setdefault((own, frame), []).append((feature, other))
        lost: dict[int, list[int]] = {}
        for (own, frame), pairs in again.items():
            features, others = np.array(pairs).T
            places, seen = _seen_again(
                self.seen[own].picture,
                self.seen[frame].picture,
                self.seen[own].pixels[features],
                self.seen[frame].pixels[others],
            )
            points = reconstruction.image(frame + 1).points2D
            for other, place in zip(others[seen].tolist(), places[seen]):
                points[other].xy = place
            lost.setdefault(frame, []).extend(others[~seen].tolist())
        for frame, gone in lost.items():
            if 2 * len(gone) <= reconstruction.image(frame + 1).num_points3D:
                for feature in gone:
                    if reconstruction.image(frame + 1).points2D[feature].has_point3D():
                        reconstruction.delete_observation(frame + 1, feature)

    def _connect(self) -> None:
        """Find the motions between keyframes that were not tried yet."""
        found = {pair: self._motion(*pair) for pair in self._pairs() if pair not in self.tried}
        self.tried |= found.keys()
        self.motions |= {pair: motion for pair, motion in found.items() if motion is not None}

    def _pairs(self) -> list[tuple[int, int]]:
        """Keyframes to be matched with each other."""
        count = len(self.keyframes)
        gaps = {*range(1, self.options.overlap + 1), *(2**power for power in range(count.bit_length()))}
        places = itertools.product(range(count), sorted(gaps))
        return [(self.keyframes[at], self.keyframes[at + gap]) for at, gap in places if at + gap < count]

    def _neighbours(self, frame: int) -> list[int]:
        """Keyframes around a frame, without itself."""
        before = [keyframe for keyframe in self.keyframes if keyframe < frame]
        after = [keyframe for keyframe in self.keyframes if keyframe > frame]
        return before[-self.options.neighbours :] + after[: self.options.neighbours]

    def _motion(self, first: int, second: int) -> _Motion | None:
        """Motion between two keyframes, if enough matches agree."""
        matches = self._matched(first, second)
        if len(matches) < self.options.min_inliers:
            return None
        ransac = self.colmap.RANSACOptions()
        ransac.random_seed, ransac.max_error = self.seed, self.options.inlier_distance
        ransac.min_num_trials, ransac.max_num_trials, ransac.min_inlier_ratio = 100, 5000, 0.25
        pixels = self.seen[first].pixels[matches[:, 0]], self.seen[second].pixels[matches[:, 1]]
        found = self.colmap.estimate_relative_pose(self.camera, pixels[0], self.camera, pixels[1], ransac)
        if found is None or found["num_inliers"] < self.options.min_inliers:
            return None
        matches = matches[found["inlier_mask"]]
        before, after = self.rays[first][matches[:, 0]], self.rays[second][matches[:, 1]]
        parallax = np.linalg.norm(before @ fit_rotation(before, after).T - after, axis=1) / self.pixel
        return _Motion(matches, found["cam2_from_cam1"], parallax)

    def _parallax_around(self, pair: tuple[int, int]) -> float:
        """Parallax in pixels between two keyframes: the median over the headings with enough matches."""
        motion = self.motions[pair]
        east, _, north = self.rays[pair[0]][motion.matches[:, 0]].T
        heading = ((np.arctan2(east, north) / (2 * np.pi) + 0.5) * HEADINGS).astype(int) % HEADINGS
        around = [motion.parallax[heading == number] for number in range(HEADINGS)]
        enough = [part for part in around if len(part) >= self.options.min_inliers / HEADINGS]
        return float(np.median([np.percentile(part, PARALLAX_PERCENTILE) for part in enough]))

    def _unexplained(self, pair: tuple[int, int]) -> float:
        """Motion in pixels that no rotation explains, summed over two keyframes' matches: more makes a better start."""
        return float(np.minimum(self.motions[pair].parallax, MAX_PARALLAX).sum())

    def _matched(self, first: int, second: int) -> np.ndarray:
        """Matches (M, 2) of two frames, each the other's best and clearly better than the second best."""
        return match_features(self.seen[first].descriptors, self.seen[second].descriptors, self.options.ratio)


def _reached_by_enough(parallax: list[float]) -> float:
    """Parallax that enough pairs of keyframes reach; 0 without pairs."""
    enough = min(len(parallax), max(FEWEST_MOVED, math.ceil(SHARE_MOVED * len(parallax))))
    return sorted(parallax, reverse=True)[enough - 1] if parallax else 0.0


def check_frames(frames: np.ndarray) -> np.ndarray:
    """The frames, if they are a panorama over time: (N, H, W, 3) uint8 with N of at least 1."""
    frames = np.asarray(frames)
    if frames.ndim != 4 or frames.shape[-1] != 3 or frames.dtype != np.uint8 or not all(frames.shape):
        raise ValueError(f"frames must be (N, H, W, 3) uint8, got {frames.dtype} {frames.shape}")
    return frames


def match_features(
    first: np.ndarray,  # (M, 128) uint8
    second: np.ndarray,  # (K, 128) uint8
    ratio: float,
) -> np.ndarray:
    """Pairs (L, 2) of descriptors that are each other's nearest, and nearer than `ratio` times the second nearest."""
    if min(len(first), len(second)) < 2:
        return np.zeros((0, 2), np.int64)
    a, b = first.astype(np.float32), second.astype(np.float32)
    squared = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    forward, backward = squared.argmin(1), squared.argmin(0)
    rows = np.arange(len(a))
    nearest = squared[rows, forward]
    squared[rows, forward] = np.inf
    chosen = (backward[forward] == rows) & (nearest < ratio**2 * squared.min(1))
    return np.stack([rows[chosen], forward[chosen]], 1)


def fit_rotation(
    before: np.ndarray,  # (M, 3) unit rays
    after: np.ndarray,  # (M, 3) unit rays
    rounds: int = 10,
) -> np.ndarray:
    """Rotation (3, 3) that turns `before` into `after` with the least sum of distances, so that few outliers matter."""
    weights = np.ones(len(before))
    for _ in range(rounds):
        rotation = nearest_rotation((after * weights[:, None]).T @ before)
        weights = 1 / np.maximum(np.linalg.norm(before @ rotation.T - after, axis=1), 1e-6)
    return rotation


def _seen_again(
    first: np.ndarray,  # (H, W + 2 SEAM) uint8
    second: np.ndarray,  # (H, W + 2 SEAM) uint8
    before: np.ndarray,  # (M, 2) pixels without the seam
    after: np.ndarray,  # (M, 2) about where they are in the second picture
) -> tuple[np.ndarray, np.ndarray]:
    """Exact places (M, 2) in the second picture, and which (M,) can be believed."""
    import cv2

    shift = np.array([SEAM - 0.5, -0.5])
    start, guess = ((pixels + shift).astype(np.float32) for pixels in (before, after))
    options: dict[str, Any] = {
        "winSize": (PATCH, PATCH),
        "maxLevel": 0,
        "criteria": (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 30, 0.003),
        "flags": cv2.OPTFLOW_USE_INITIAL_FLOW,
    }
    there, found, _ = cv2.calcOpticalFlowPyrLK(first, second, start, guess.copy(), **options)
    back, returned, _ = cv2.calcOpticalFlowPyrLK(second, first, there, start.copy(), **options)
    seen = (found[:, 0] > 0) & (returned[:, 0] > 0)
    seen &= np.linalg.norm(there - guess, axis=1) < MAX_CORRECTION
    seen &= np.linalg.norm(back - start, axis=1) < MAX_RETURN
    return there.astype(np.float64) - shift, seen


def _poses(reconstruction: Any, world: tuple[int, int], pixel: float) -> list[tuple[int, _Placed]]:
    """Frame numbers and poses of a map."""
    errors = {key: point.error for key, point in reconstruction.points3D.items()}
    found = []
    for image in reconstruction.images.values():
        if image.has_pose:
            c2w = np.eye(4)
            c2w[:3] = image.cam_from_world().inverse().matrix()
            seen = [errors[point.point3D_id] for point in image.points2D if point.has_point3D()]
            error = float(np.degrees(np.mean(seen) * pixel)) if seen else np.inf
            found.append((image.image_id - 1, _Placed(world, c2w, error, len(seen))))
    return found


def _split(placed: dict[int, _Placed], minimum: int) -> list[Track]:
    """Tracks of frames that follow each other in one world, each starting at the identity."""
    tracks = []
    places = enumerate(sorted(placed))
    for _, run in itertools.groupby(places, key=lambda place: (place[1] - place[0], placed[place[1]].world)):
        frames = [frame for _, frame in run]
        if len(frames) >= minimum:
            c2w = np.stack([placed[frame].c2w for frame in frames])
            error = float(np.mean([placed[frame].error for frame in frames]))
            tracks.append(Track(frames[0], frames[-1] + 1, np.linalg.inv(c2w[0]) @ c2w, error))
    return tracks
