"""Stage 1: from raw 360 degree videos to clips that are worth filming again (supplement A.2)."""

from ucpe.synthesis.curation.normalization import ScaleNormalization
from ucpe.synthesis.curation.overlay import OverlayCheck
from ucpe.synthesis.curation.pipeline import CurationSettings, CurationSummary, curate_videos
from ucpe.synthesis.curation.poses import PoseTracker, SphericalMapper, Track
from ucpe.synthesis.curation.projection import ProjectionCheck
from ucpe.synthesis.curation.quality import QualityCheck
from ucpe.synthesis.curation.reading import Reading
from ucpe.synthesis.curation.report import write_report
from ucpe.synthesis.curation.rotation import RotationCheck
from ucpe.synthesis.curation.scale import near_depth
from ucpe.synthesis.curation.segmentation import Segmentation
from ucpe.synthesis.curation.steps import SourceClip, Step
from ucpe.synthesis.curation.tracking import Tracking
from ucpe.synthesis.curation.vision_language import VisionLanguageFilter

__all__ = [
    "CurationSettings",
    "CurationSummary",
    "OverlayCheck",
    "PoseTracker",
    "ProjectionCheck",
    "QualityCheck",
    "Reading",
    "RotationCheck",
    "ScaleNormalization",
    "Segmentation",
    "SourceClip",
    "SphericalMapper",
    "Step",
    "Track",
    "Tracking",
    "VisionLanguageFilter",
    "curate_videos",
    "near_depth",
    "write_report",
]
