"""The bundled desk calibrator and desk motion estimator: small networks trained on procedural worlds.

They are for videos of the desk model (64 x 112 pictures of worlds) and for tests, and say so: on any other footage
their numbers mean nothing. How they were trained is in `recipes/desk/estimators.py`.
"""

from __future__ import annotations

import itertools
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from ucpe.desk import ESTIMATOR_FLOORS, HEIGHT, WIDTH
from ucpe.desk import ESTIMATORS as WEIGHTS
from ucpe.desk.networks import DeskCalibrator, DeskMotion, pictures_of
from ucpe.evaluation.estimators.base import (
    Calibration,
    Clip,
    EstimationFailure,
    LensModel,
    PoseEstimate,
    angles_of_up,
    measured_floor,
)
from ucpe.lenses import UCM, Lens
from ucpe.trajectories.rotations import pose_matrix, rotation_angle, slerp

ASPECT_TOLERANCE = 0.06
"""Maximum relative difference between a video's aspect ratio and 7:4."""

STRIDE = 4
"""Number of frames from one anchor of a path to the next."""

MAX_DISAGREEMENT = 1.5
"""Maximum angle in degrees between a chain of turns and the turn over STRIDE frames; beyond it the chain is kept."""

MAX_DRIFT = 8.0
"""Maximum angle in degrees between paths by flow and by matching; beyond it matching is believed. 98 % of true clips
stay below."""

NOTE = "for videos of the desk model only"


class _Desk:
    """What the two estimators share."""

    name = "desk"

    def __init__(self, weights: str | Path = WEIGHTS):
        self.weights = Path(weights)
        self.calibrator, self.motion, self.metadata = load_weights(self.weights)

    def describe(self) -> dict[str, Any]:
        """Its name, purpose and training."""
        return {"name": self.name, "note": NOTE, "training": self.metadata["training"]}

    def files(self, name: str) -> list[Path]:
        """The weights."""
        return [self.weights]


class DeskCalibrationEstimator(_Desk):
    """Pitch, roll, field of view and xi of every frame; `ucpe evaluate --calibrator desk`."""

    model: LensModel = "ucm"

    def estimate(self, clip: Clip) -> Calibration:
        """Orientation and UCM lens of every frame of a clip."""
        return calibrate(self.calibrator, desk_frames(clip))

    def floor(self) -> dict[str, float]:
        """The calibrator's own error on held-out worlds."""
        return self.metadata["floors"]["calibration"]


class DeskMotionEstimator(_Desk):
    """Relative poses in near-plane depths from neighbouring frames; `ucpe evaluate --pose desk`."""

    def estimate(self, clip: Clip, lens: Lens) -> PoseEstimate:
        """Poses of every frame of a clip."""
        c2w = track(self.motion, desk_frames(clip), lens)
        return PoseEstimate(c2w, np.arange(len(c2w)), near_depth=1.0, metric=True, details={"note": NOTE})

    def floor(self, protocol: str) -> dict[str, float] | None:
        """The estimator's own error on held-out worlds. The error under `robust` is stored with the weights."""
        if protocol == "robust":
            return self.metadata["floors"]["pose"]
        return measured_floor(ESTIMATOR_FLOORS, protocol, [self.weights])


def desk_frames(clip: Clip) -> np.ndarray:
    """Frames (N, HEIGHT, WIDTH, 3) uint8 of a clip, resized if it has the desk model's aspect ratio."""
    import cv2

    if abs(clip.width / clip.height * HEIGHT / WIDTH - 1) > ASPECT_TOLERANCE:
        raise EstimationFailure(
            f"the desk estimators take 7:4 videos of the desk model, this one is {clip.width} x {clip.height}"
        )
    if clip.frames.shape[1:3] == (HEIGHT, WIDTH):
        return clip.frames
    return np.stack([cv2.resize(frame, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA) for frame in clip.frames])


@torch.no_grad()
def calibrate(
    network: DeskCalibrator,
    frames: np.ndarray,  # (N, HEIGHT, WIDTH, 3) uint8
) -> Calibration:
    """Orientation and UCM lens of every frame; each frame is averaged with its mirror image."""
    pictures = pictures_of(frames)
    up, xfov, xi = (value.double() for value in network(pictures))
    mirrored, mirrored_xfov, mirrored_xi = (value.double() for value in network(pictures.flip(-1)))
    up = up + mirrored * torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)
    xfov = ((xfov + mirrored_xfov) / 2).clamp(20, 220)
    xi = ((xi + mirrored_xi) / 2).clamp(0, 3)
    pitch, roll = angles_of_up(up.numpy())
    lens = UCM(xfov=torch.minimum(xfov, UCM(xfov=20, xi=xi).max_xfov() - 1e-3), xi=xi)
    numbers = {
        "yfov": lens.yfov(HEIGHT, WIDTH).numpy(),
        "xfov": lens.parameters["xfov"].numpy(),
        "xi": xi.numpy(),
    }
    return Calibration("ucm", np.arange(len(frames)), pitch, roll, numbers, {"note": NOTE})


@torch.no_grad()
def track(
    network: DeskMotion,
    frames: np.ndarray,  # (N, HEIGHT, WIDTH, 3) uint8
    lens: Lens,  # batch shape () or (N,)
) -> Tensor:
    """Poses (N, 4, 4) float64 in near-plane depths, the first the identity.

    Motions between neighbours, found by flow, are chained. Turns over STRIDE frames drift less, and correct the chain
    where the two agree. If turns found by matching lead elsewhere, they correct the chain instead.
    """
    if len(frames) < 2:
        raise EstimationFailure("motion needs at least two frames")
    anchors = [*range(0, len(frames) - 1, STRIDE), len(frames) - 1]
    per_frame = (lens if lens.batch_shape else lens.expand(len(frames))).to(torch.float64)
    steps = _motions(network, frames, per_frame)
    leaps, matches = (_motions(network, frames[anchors], per_frame[anchors], matching) for matching in (False, True))
    flowing, matched = [torch.eye(4, dtype=torch.float64)], [torch.eye(4, dtype=torch.float64)]
    for (start, end), leap, match in zip(itertools.pairwise(anchors), leaps, matches):
        chain = torch.stack(list(itertools.accumulate(steps[start:end], torch.matmul)))
        agrees = _turn_between(chain[-1], leap) < MAX_DISAGREEMENT
        flowing.extend(flowing[-1] @ (_turned(chain, leap) if agrees else chain))
        matched.extend(matched[-1] @ _turned(chain, match))
    drift = max(_turn_between(flowing[index], matched[index]) for index in anchors)
    return torch.stack(flowing if drift < MAX_DRIFT else matched)


def _motions(network: DeskMotion, frames: np.ndarray, lens: Lens, matching: bool = False) -> Tensor:
    """Motions (N - 1, 4, 4) from each frame to the next, each the mean of a look forwards and a look backwards."""
    lenses = lens[:-1], lens[1:]
    turn, shift = network(frames[:-1], frames[1:], *lenses, matching)
    back_turn, back_shift = network(frames[1:], frames[:-1], *reversed(lenses), matching)
    rotation = slerp(turn.double(), back_turn.double().mT, torch.full((len(turn),), 0.5, dtype=torch.float64))
    shift = (shift.double() - (rotation @ back_shift.double()[..., None])[..., 0]) / 2
    return pose_matrix(rotation, shift)


def _turned(
    chain: Tensor,  # (n, 4, 4)
    end: Tensor,  # (4, 4)
) -> Tensor:
    """The chain with its cameras turned, each by its share, so that the last looks where `end` does."""
    share = torch.arange(1, len(chain) + 1, dtype=torch.float64) / len(chain)
    rest = (chain[-1, :3, :3].mT @ end[:3, :3]).expand(len(chain), 3, 3)
    turned = chain[:, :3, :3] @ slerp(torch.eye(3, dtype=torch.float64).expand_as(rest), rest, share)
    return pose_matrix(turned, chain[:, :3, 3])


def _turn_between(first: Tensor, second: Tensor) -> float:
    """Degrees between the rotations of two poses (4, 4)."""
    return float(rotation_angle(first[:3, :3].mT @ second[:3, :3]))


@cache
def load_weights(path: Path) -> tuple[DeskCalibrator, DeskMotion, dict[str, Any]]:
    """Both networks, and their floors and training settings."""
    if not path.exists():
        raise ValueError(f"no desk estimator weights at {path}; recipes/desk/estimators.py trains them")
    networks: dict[str, nn.Module] = {"calibrator": DeskCalibrator(), "motion": DeskMotion()}
    with safe_open(path, "pt") as file:
        metadata = json.loads((file.metadata() or {})["ucpe"])
        names = list(file.keys())
        for prefix, network in networks.items():
            own = [name for name in names if name.startswith(f"{prefix}.")]
            network.load_state_dict({name[len(prefix) + 1 :]: file.get_tensor(name).float() for name in own})
            network.eval()
    return networks["calibrator"], networks["motion"], metadata  # type: ignore[return-value]
