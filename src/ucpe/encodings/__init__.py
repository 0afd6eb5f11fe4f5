"""Cameras -> what a transformer eats: ray frames, Lat-Up, absolute encodings, and per-token attention operators."""

from ucpe.encodings.absolute import plucker_rays, raw_parameters, sightline_features
from ucpe.encodings.attention import camera_attention
from ucpe.encodings.frames import RayFrames, ray_frames, world_rays
from ucpe.encodings.learned import AddedRays, RaySegments, RotaryRays
from ucpe.encodings.operators import ENCODINGS, LEARNED_ENCODINGS, Operator, camera_operator
from ucpe.encodings.orientation import lat_up_map
from ucpe.encodings.sightings import sightings

__all__ = [
    "ENCODINGS",
    "LEARNED_ENCODINGS",
    "AddedRays",
    "Operator",
    "RayFrames",
    "RaySegments",
    "RotaryRays",
    "camera_attention",
    "camera_operator",
    "lat_up_map",
    "plucker_rays",
    "raw_parameters",
    "ray_frames",
    "sightings",
    "sightline_features",
    "world_rays",
]
