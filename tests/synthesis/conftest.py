"""Raw 360 degree footage whose truth is known: worlds rendered as small videos, joined and spoiled in every way."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

HEIGHT, WIDTH, FPS, FRAMES = 192, 384, 10.0, 26


@dataclass
class Scene:
    """A walk through a world: frames (N, H, W, 3) uint8, true poses (N, 4, 4) and near-plane depths (N,) in metres."""

    frames: np.ndarray
    c2w: np.ndarray
    near_depth: np.ndarray


@dataclass
class Truth:
    """What a video holds: scenes (frames first to last - 1, and where their frame 0 would be), transitions, and
    the step that must drop each scene."""

    scenes: list[tuple[int, int, int, Scene]] = field(default_factory=list)
    transitions: list[tuple[int, int, str]] = field(default_factory=list)
    dropped_by: list[str] = field(default_factory=list)


def make_scene(
    seed: int,
    kind: str,
    frames: int = FRAMES,
    length: float = 0.5,
    turns: np.ndarray | None = None,  # (N, 3, 3), camera to level camera
    lens=None,
) -> Scene:
    """A straight walk of `length` near-plane depths."""
    from ucpe.lenses import Equirectangular
    from ucpe.synthesis.worlds import World, near_plane_depth, render_clip

    world = World.sample(seed, kind=kind)
    for heading in np.radians(np.arange(40 * seed, 40 * seed + 360, 17)):
        way = np.linspace(0, length * world.near_depth, frames)
        wave = 0.05 * np.sin(np.linspace(0, 6, frames))
        positions = np.stack([way * np.sin(heading) + wave, -0.3 * wave, way * np.cos(heading)], -1)
        positions -= positions[0]
        if (world.clearance(positions) > 0.35).all():
            break
    c2w = np.tile(np.eye(4), (frames, 1, 1))
    c2w[:, :3, 3] = positions
    if turns is not None:
        c2w[:, :3, :3] = turns
    image = render_clip(world, lens or Equirectangular(), c2w, HEIGHT, WIDTH, FPS, threads=1)
    return Scene(image.color, c2w, np.array([near_plane_depth(depth) for depth in image.depth]))


def turn_matrices(degrees: np.ndarray) -> np.ndarray:
    """Rotations (N, 3, 3) from pitch, yaw and roll (N, 3) in degrees."""
    import torch

    from ucpe.trajectories.rotations import rotation_from_angles

    return rotation_from_angles(*torch.from_numpy(np.asarray(degrees, np.float64)).unbind(-1)).numpy()


def with_text(frames: np.ndarray, text: str = "CHANNEL 360", opacity: float = 0.8) -> np.ndarray:
    """A watermark across the lower half."""
    out = []
    for frame in frames:
        over = cv2.putText(
            frame.copy(), text, (110, 160), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1, cv2.LINE_AA
        )
        out.append(cv2.addWeighted(over, opacity, frame, 1 - opacity, 0))
    return np.stack(out)


def with_logo(frames: np.ndarray, opacity: float = 0.9) -> np.ndarray:
    """A sign without letters."""
    out = []
    for frame in frames:
        over = cv2.circle(frame.copy(), (300, 140), 10, (255, 255, 255), 2, cv2.LINE_AA)
        over = cv2.rectangle(over, (292, 132), (308, 148), (20, 20, 20), 2)
        out.append(cv2.addWeighted(over, opacity, frame, 1 - opacity, 0))
    return np.stack(out)


def letterboxed(frames: np.ndarray, share: float = 0.1) -> np.ndarray:
    """Black above and below."""
    border = round(share * frames.shape[1])
    out = frames.copy()
    out[:, :border], out[:, -border:] = 0, 0
    return out


def cropped(frames: np.ndarray, degrees: float = 60.0) -> np.ndarray:
    """Without poles: stretched from -degrees to +degrees of latitude."""
    rows = round(frames.shape[1] * (90 - degrees) / 180)
    return np.stack([cv2.resize(frame[rows:-rows], frame.shape[1::-1]) for frame in frames])


def stereo(frames: np.ndarray) -> np.ndarray:
    """The same scene for two eyes, one above the other."""
    both = np.concatenate([frames, np.roll(frames, 3, axis=2)], axis=1)
    return np.stack([cv2.resize(frame, (frame.shape[1], frame.shape[0] // 2)) for frame in both])


def join(*parts: tuple[np.ndarray, str, int]) -> tuple:
    """Scenes one after the other, each with how the next one begins ("cut", "fade", "cross-fade") in how many frames.

    Returns the frames, where each scene is untouched, where the transitions are, and where each scene's frame 0 is.
    """
    film, spans, transitions, origins = [parts[0][0]], [], [], [0]
    start, at = 0, len(parts[0][0])
    for (_, kind, length), (after, _, _) in itertools.pairwise(parts):
        if kind == "cut":
            spans.append((start, at))
            transitions.append((at, at, kind))
            film.append(after)
            origins.append(at)
            start, at = at, at + len(after)
        elif kind == "fade":
            before = film[-1].astype(np.float32)
            before[-length:] *= np.linspace(1, 0, length)[:, None, None, None]
            faded = after.astype(np.float32)
            faded[:length] *= np.linspace(0, 1, length)[:, None, None, None]
            film[-1] = before.astype(np.uint8)
            film.append(faded.astype(np.uint8))
            spans.append((start, at - length))
            transitions.append((at - length, at + length, kind))
            origins.append(at)
            start, at = at + length, at + len(after)
        else:
            share = np.linspace(0, 1, length + 2)[1:-1, None, None, None]
            mixed = film[-1][-length:] * (1 - share) + after[:length] * share
            film[-1] = film[-1][:-length]
            film += [mixed.astype(np.uint8), after[length:]]
            spans.append((start, at - length))
            transitions.append((at - length, at, kind))
            origins.append(at - length)
            start, at = at, at + len(after) - length
    spans.append((start, at))
    return np.concatenate(film), spans, transitions, origins


@pytest.fixture(scope="session")
def scenes() -> dict[str, Scene]:
    """Clean scenes by name."""
    joined = {"room": (0, "indoor"), "desert": (1, "outdoor", 32), "parlour": (2, "indoor", 40)}
    more = {"square": (3, "outdoor", 34), "hall": (4, "indoor"), "plaza": (5, "outdoor"), "den": (6, "indoor")}
    return {name: make_scene(*place) for name, place in (joined | more).items()}


@pytest.fixture(scope="session")
def raw_footage(scenes: dict[str, Scene], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Truth]]:
    """A folder of raw videos, and the truth about each."""
    from ucpe.lenses import Pinhole
    from ucpe.synthesis.curation.flow import turn_panorama
    from ucpe.video import write_video

    folder = tmp_path_factory.mktemp("raw")
    truth: dict[str, Truth] = {}

    def save(name: str, parts: list[tuple[Scene, np.ndarray, str, int]], dropped_by: list[str]) -> None:
        film, spans, transitions, origins = join(*((frames, kind, length) for _, frames, kind, length in parts))
        write_video(folder / name, film, FPS, crf=12, preset="veryfast")
        known = [(*span, origin, part[0]) for span, origin, part in zip(spans, origins, parts)]
        truth[name] = Truth(known, transitions, dropped_by)

    order = [("room", "cut", 0), ("desert", "fade", 6), ("parlour", "cross-fade", 8), ("square", "", 0)]
    save("joined.mp4", [(scenes[name], scenes[name].frames, *after) for name, *after in order], [""] * 4)
    hall, plaza, den = scenes["hall"], scenes["plaza"], scenes["den"]
    marked = [(plaza, with_text(plaza.frames), "cut", 0), (den, with_logo(den.frames), "", 0)]
    save("marked.mp4", marked, ["overlay"] * 2)
    flat = make_scene(1, "outdoor", lens=Pinhole(xfov=90))
    blurred = scenes["square"].frames[:FRAMES].copy()
    for frame in blurred:
        frame[24:-24] = cv2.GaussianBlur(np.pad(frame, ((0, 0), (16, 16), (0, 0)), "wrap"), (0, 0), 4)[24:-24, 16:-16]
    spoiled = [
        (hall, letterboxed(hall.frames), "cut", 0),
        (plaza, stereo(plaza.frames), "cut", 0),
        (den, cropped(den.frames), "cut", 0),
        (flat, flat.frames, "cut", 0),
        (scenes["square"], blurred, "", 0),
    ]
    save("spoiled.mp4", spoiled, ["projection"] * 4 + ["quality"])
    shaken = make_scene(4, "indoor", turns=turn_matrices(np.random.default_rng(0).normal(0, 2.5, (FRAMES, 3))))
    turn = turn_matrices(np.array([[6.0, 0.0, 11.0]]))[0]
    leaning = np.stack([turn_panorama(frame, turn) for frame in scenes["parlour"].frames[:FRAMES]])
    unsteady = [(shaken, shaken.frames, "cut", 0), (scenes["parlour"], leaning, "", 0)]
    save("unsteady.mp4", unsteady, ["rotation"] * 2)
    whole = (folder / "joined.mp4").read_bytes()
    (folder / "truncated.mp4").write_bytes(whole[: len(whole) // 2])
    return folder, truth


@pytest.fixture(scope="session")
def footage_tools() -> SimpleNamespace:
    """Ways to spoil frames."""
    return SimpleNamespace(
        with_text=with_text, with_logo=with_logo, letterboxed=letterboxed, cropped=cropped, stereo=stereo
    )
