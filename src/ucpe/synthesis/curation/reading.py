"""The first step: decode a source video once, whole, and keep a small copy that all other steps look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from ucpe.synthesis.curation.steps import Row, SourceClip, Step, write_proxy
from ucpe.video import VideoError, probe_video


@dataclass(frozen=True)
class Reading(Step):
    """Makes the small copy; sets damaged files aside."""

    name: ClassVar[str] = "reading"
    columns: ClassVar[Mapping[str, pa.DataType]] = {
        "fps": pa.float64(),
        "height": pa.int32(),
        "width": pa.int32(),
        "problem": pa.string(),
    }
    thresholds: ClassVar[tuple[str, ...]] = ("min_height",)

    proxy_height: int = 640
    """Height in pixels of the small copy."""
    min_height: int = 0
    """Height in pixels below which a source is not used; the paper's are 4K."""

    def run(self, clip: SourceClip) -> list[Row]:
        """The whole video with its size and rate, or with what is wrong with the file."""
        try:
            info = probe_video(clip.source)
            frames, fps = write_proxy(clip.source, clip.proxy, self.proxy_height)
        except VideoError as error:
            problem = str(error).removeprefix(f"{clip.source}: ")
            return [{"stop": 0, "fps": 0.0, "height": 0, "width": 0, "problem": problem}]
        return [{"stop": frames, "fps": fps, "height": info.height, "width": info.width, "problem": ""}]

    def verdict(self, row: Row) -> str:
        """Dropped if damaged or too small."""
        if row["problem"]:
            return f"set aside: {row['problem']}"
        return f"under {self.min_height} pixels high" if row["height"] < self.min_height else ""
