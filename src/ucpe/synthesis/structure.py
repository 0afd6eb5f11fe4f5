"""Structure from motion with pycolmap, set up the same wherever it is used: quiet, on the CPU, reproducible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def load_pycolmap(what: str) -> Any:
    """pycolmap with its progress lines turned off; if it is missing, ValueError that says that `what` needs it."""
    try:
        import pycolmap
    except ImportError:
        raise ValueError(f"{what} needs pycolmap: pip install 'ucpe[colmap]'") from None
    pycolmap.logging.minloglevel = pycolmap.logging.FATAL.value  # some of its calls turn them on again
    return pycolmap


def write_picture(
    folder: Path,
    number: int,
    rgb: np.ndarray,  # (H, W, 3) uint8
) -> str:
    """Write a frame as a PNG named by its number; return the file name."""
    import cv2

    name = f"{number:08d}.png"
    cv2.imwrite(str(folder / name), np.ascontiguousarray(rgb[..., ::-1]))
    return name


def extract_features(
    database: Path,
    images: Path,
    model: str,
    parameters: str = "",
    *,
    masks: Path | None = None,
    max_features: int = 2048,
    enlarged: bool = True,
    threads: int = 1,
) -> None:
    """Find features in all pictures of a folder, which share one camera of a COLMAP model (with parameters, if given).

    If `enlarged`, pictures are first doubled in size, which finds finer features and takes three times as long.
    """
    pycolmap = load_pycolmap("extracting features")
    reader, extraction = pycolmap.ImageReaderOptions(), pycolmap.FeatureExtractionOptions()
    reader.camera_model, reader.camera_params = model, parameters
    if masks is not None:
        reader.mask_path = masks
    extraction.num_threads, extraction.use_gpu, extraction.sift.max_num_features = threads, False, max_features
    extraction.sift.first_octave = -1 if enlarged else 0
    single, cpu = pycolmap.CameraMode.SINGLE, pycolmap.Device.cpu
    pycolmap.extract_features(
        database, images, camera_mode=single, reader_options=reader, extraction_options=extraction, device=cpu
    )


def match_features(
    database: Path, *, overlap: int | None = None, seed: int = 0, threads: int = 1, homographies: bool = True
) -> None:
    """Match each picture with the next `overlap` ones and some further ones, or without `overlap` with all others."""
    pycolmap = load_pycolmap("matching features")
    matching, verification = pycolmap.FeatureMatchingOptions(), pycolmap.TwoViewGeometryOptions()
    matching.num_threads, matching.use_gpu, verification.ransac.random_seed = threads, False, seed
    if not homographies:
        verification.max_H_inlier_ratio = 1.0
    cpu = pycolmap.Device.cpu
    if overlap is None:
        pycolmap.match_exhaustive(database, matching, verification_options=verification, device=cpu)
        return
    pairing = pycolmap.SequentialPairingOptions()
    pairing.overlap, pairing.num_threads = overlap, threads
    pycolmap.match_sequential(database, matching, pairing, verification, device=cpu)


def mapping_options(seed: int = 0, threads: int = 1, *, hold_lens: bool = False) -> Any:
    """Options for one incremental map without colours; with `hold_lens` the lens stays as it is."""
    options = load_pycolmap("mapping").IncrementalPipelineOptions()
    options.random_seed = options.mapper.random_seed = options.triangulation.random_seed = seed
    options.num_threads = options.mapper.num_threads = threads
    options.multiple_models, options.min_model_size, options.extract_colors = False, 3, False
    options.mapper.init_min_num_inliers = 50
    if hold_lens:
        options.ba_refine_focal_length = options.ba_refine_principal_point = options.ba_refine_extra_params = False
        options.mapper.abs_pose_refine_focal_length = options.mapper.abs_pose_refine_extra_params = False
    return options


def largest_map(database: Path, images: Path, output: Path, options: Any) -> Any | None:
    """The map with the most pictures; None if there is none."""
    output.mkdir(exist_ok=True)
    maps = load_pycolmap("mapping").incremental_mapping(database, images, output, options)
    return max(maps.values(), key=lambda found: found.num_reg_images(), default=None)


def poses_by_number(reconstruction: Any) -> dict[int, np.ndarray]:
    """Camera-to-world poses (4, 4) of the pictures that a map has placed, by their numbers, in order."""
    poses = {}
    for image in reconstruction.images.values():
        if image.has_pose:
            pose = np.eye(4)
            pose[:3] = image.cam_from_world().inverse().matrix()
            poses[int(Path(image.name).stem)] = pose
    return dict(sorted(poses.items()))
