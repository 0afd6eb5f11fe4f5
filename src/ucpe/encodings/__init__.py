"""Cameras -> what a transformer eats: ray frames, Lat-Up, absolute encodings, and per-token attention operators."""

from ucpe.encodings.absolute import plucker_rays, raw_parameters
from ucpe.encodings.attention import camera_attention
from ucpe.encodings.frames import RayFrames, ray_frames, world_rays
from ucpe.encodings.operators import ENCODINGS, Operator, camera_operator
from ucpe.encodings.orientation import lat_up_map

__all__ = [
    "ENCODINGS",
    "Operator",
    "RayFrames",
    "camera_attention",
    "camera_operator",
    "lat_up_map",
    "plucker_rays",
    "raw_parameters",
    "ray_frames",
    "world_rays",
]
