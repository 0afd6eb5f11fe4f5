"""Stage 2: rotations of real cameras, matched by translation and transferred to panoramic clips (supplement A.3)."""

from ucpe.synthesis.motion.candidates import (
    CameraBench,
    Motion,
    MotionSource,
    MoveSource,
    TrajectoryFolder,
    extract_motions,
    read_motions,
    read_up_vectors,
)
from ucpe.synthesis.motion.matching import Matches, match
from ucpe.synthesis.motion.pipeline import MatchSettings, match_clips
from ucpe.synthesis.motion.poses import PoseBackend, Pycolmap, VipeResults
from ucpe.synthesis.motion.selection import TEST_LIMITS, Limits, Scoring, select
from ucpe.synthesis.motion.transfer import matched_sources, transfer_rotations, write_sources
from ucpe.synthesis.motion.window import Window
from ucpe.synthesis.rows import CURATED, MATCHES, MOTIONS

__all__ = [
    "CURATED",
    "MATCHES",
    "MOTIONS",
    "TEST_LIMITS",
    "CameraBench",
    "Limits",
    "MatchSettings",
    "Matches",
    "Motion",
    "MotionSource",
    "MoveSource",
    "PoseBackend",
    "Pycolmap",
    "Scoring",
    "TrajectoryFolder",
    "VipeResults",
    "Window",
    "extract_motions",
    "match",
    "match_clips",
    "matched_sources",
    "read_motions",
    "read_up_vectors",
    "select",
    "transfer_rotations",
    "write_sources",
]
