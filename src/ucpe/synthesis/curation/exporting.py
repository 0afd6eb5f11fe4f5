"""What curation hands on: each kept clip as a file of its own, and its row for stage 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ucpe.files import file_fingerprint, safe_name
from ucpe.synthesis.curation.scale import rescale
from ucpe.synthesis.curation.steps import Row
from ucpe.synthesis.layouts import whole_width
from ucpe.synthesis.rows import pose_column, poses_of
from ucpe.video import VideoError, VideoWriter, probe_video, read_video

FOLDER = "clips"
"""Folder of the clips' files, beside the Parquet parts."""


def clip_file(source: Path, row: Row) -> str:
    """File name of a clip, with the source's fingerprint: another video of the same name gets other files."""
    return f"{safe_name(row['id'])}-{file_fingerprint(source)[:8]}.mp4"


def cut_clip(source: Path, row: Row, path: Path) -> None:
    """Write a clip as a file of its own, frame by frame, at full size and in the source's colours.

    A panorama that was squeezed to 16:9 is stretched to 2:1.
    """
    import cv2

    info = probe_video(source)
    height, width = info.height // 2 * 2, info.width // 2 * 2
    whole = whole_width(height, width)
    count = row["stop"] - row["start"]
    with VideoWriter(path, height, whole, row["fps"], colors=info.colors) as writer:
        for frame in read_video(source, start=row["start"], frames=count):
            luma, blue, red = (np.ascontiguousarray(plane) for plane in frame.planes[:3])
            planes = [luma[:height, :width], *(plane[: height // 2, : width // 2] for plane in (blue, red))]
            if whole != width:
                planes = [cv2.resize(plane, (2 * len(plane), len(plane))) for plane in planes]
            writer.write_planes(*planes)
        if writer.frames != count:
            raise VideoError(f"{source}: frames {row['start']} to {row['stop']} are not all there")


def curated_row(source: Path, row: Row) -> Row:
    """A kept clip's row for stage 2: poses relative to the first frame (y axis: gravity), in near-plane depths."""
    c2w = poses_of(row["c2w"]).numpy()
    c2w = rescale(np.linalg.inv(c2w[0]) @ c2w, row["near_depth"])
    return {
        "id": row["id"],
        "source": row["source"],
        "video": f"{FOLDER}/{clip_file(source, row)}",
        "c2w": pose_column(torch.from_numpy(c2w)),
        "fps": row["fps"],
        "quality": row["quality"],
        "watermark": row["watermark"],
        "rotation_score": row["rotation_score"],
        "categories": row.get("categories") or [],
        "motion_magnitude": row["motion_magnitude"],
    }
