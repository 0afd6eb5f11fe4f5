"""A camera over time: poses, a lens per frame, moves, alignment, and the file formats people have."""

from ucpe.trajectories.alignment import Similarity, align, alignment_error, umeyama
from ucpe.trajectories.frames import latent_frame_indices
from ucpe.trajectories.keyframes import Keyframe, find_keyframes
from ucpe.trajectories.moves import NAMED_MOVES
from ucpe.trajectories.rotations import Angles
from ucpe.trajectories.sequences import is_sequence, move_sequence
from ucpe.trajectories.trajectory import DEFAULT_FPS, DEFAULT_LENS, Trajectory
from ucpe.trajectories.world_models import (
    action_trajectory,
    direction_trajectory,
    from_pinhole_arrays,
    is_actions,
    is_direction,
    to_pinhole_arrays,
)

__all__ = [
    "DEFAULT_FPS",
    "DEFAULT_LENS",
    "NAMED_MOVES",
    "Angles",
    "Keyframe",
    "Similarity",
    "Trajectory",
    "action_trajectory",
    "align",
    "alignment_error",
    "direction_trajectory",
    "find_keyframes",
    "from_pinhole_arrays",
    "is_actions",
    "is_direction",
    "is_sequence",
    "latent_frame_indices",
    "move_sequence",
    "to_pinhole_arrays",
    "umeyama",
]
