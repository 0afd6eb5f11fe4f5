"""A camera over time: poses, a lens per frame, moves, alignment, and the file formats people have."""

from ucpe.trajectories.alignment import Similarity, align, alignment_error, umeyama
from ucpe.trajectories.frames import latent_frame_indices
from ucpe.trajectories.keyframes import Keyframe, find_keyframes
from ucpe.trajectories.moves import NAMED_MOVES
from ucpe.trajectories.rotations import Angles
from ucpe.trajectories.trajectory import DEFAULT_FPS, DEFAULT_LENS, Trajectory

__all__ = [
    "DEFAULT_FPS",
    "DEFAULT_LENS",
    "NAMED_MOVES",
    "Angles",
    "Keyframe",
    "Similarity",
    "Trajectory",
    "align",
    "alignment_error",
    "find_keyframes",
    "latent_frame_indices",
    "umeyama",
]
