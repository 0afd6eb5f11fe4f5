"""What a dataset covers, in numbers and in the paper's figures (supplement A.5).

`ucpe dataset stats` runs this on our datasets, on PanShot, and on a folder of RealEstate10K files for comparison.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import pyarrow.compute as compute
import torch
from torch import Tensor
from typing_extensions import Unpack

from ucpe.figures import GRID, INK, new_figure, quiet_axes, save_figure
from ucpe.files import atomic_file
from ucpe.lenses import FAMILIES, Lens, lens_from_dict
from ucpe.reading import parse_json
from ucpe.synthesis.dataset import METADATA, ClipDataset, clip_of_row, open_dataset, read_metadata, schema
from ucpe.synthesis.motion.figures import draw_balance
from ucpe.synthesis.rows import BLOCK, flat_poses, read_blocks, row_groups, take_rows
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import angles_from_rotation
from ucpe.work import Calls, Item, WorkArguments, complete, run

FRAMES = 81
"""Number of frames over which RealEstate10K paths are compared; shorter paths are left out, as in the paper."""

ACCENT = "#c8553d"
FAMILY_COLORS = {"pinhole": "#3d6cb3", "wide": "#3a9a73", "fisheye": "#dd9a2f", "extreme-fisheye": "#c8553d"}


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Numbers of a dataset, or of some of its clips: one entry per clip, and counts."""

    name: str = ""
    directions: np.ndarray  # (M,) degrees to the right of the first camera's heading, of clips that move
    distances: np.ndarray  # (C,) near-plane depths from first to last camera
    yfov: np.ndarray  # (C,) degrees
    xfov: np.ndarray  # (C,) degrees
    xi: np.ndarray  # (C,) 0 for pinholes, NaN for lenses that are neither pinhole nor UCM
    pitch: np.ndarray  # (C,) degrees, first camera; NaN where the world's vertical is not known
    roll: np.ndarray  # (C,) degrees, likewise
    families: Counter[str]
    variants: Counter[str] = field(default_factory=Counter)
    categories: Counter[str] = field(default_factory=Counter)
    """Number of clips by category."""
    categories_before: dict[str, int] = field(default_factory=dict)
    """Number of sources by category."""
    left_out: int = 0

    @property
    def clips(self) -> int:
        """Number of clips."""
        return len(self.distances)

    def summary(self) -> dict[str, Any]:
        """A few numbers to print or save."""
        forward = float((np.abs(self.directions) < 45).mean()) if len(self.directions) else float("nan")

        def spread(values: np.ndarray) -> list[float]:
            values = values[np.isfinite(values)]
            return [round(float(value), 2) for value in np.percentile(values, [5, 50, 95])] if len(values) else []

        return {
            "clips": self.clips,
            "left_out": self.left_out,
            "forward_share": round(forward, 3),
            "distance_5_50_95": spread(self.distances),
            **{f"{name}_5_50_95": spread(getattr(self, name)) for name in ("yfov", "xfov", "pitch", "roll")},
            "families": self.families,
            "variants": self.variants,
            "categories": self.categories,
        }


def gather(
    path: str | Path,
    split: str | None = None,
    **work: Unpack[WorkArguments],
) -> Statistics:
    """Statistics of a dataset folder (ours or PanShot's) or of a folder of RealEstate10K files; reads no video."""
    path = Path(path)
    texts = sorted(path.glob("*.txt")) if path.is_dir() else []
    tasks: Sequence[Any]
    read: Callable[[Any], Statistics]
    if (path / METADATA).is_file():
        tasks, read = range(row_groups(path / METADATA)), partial(_rows_block, path, split)
    elif texts and not (path / "PanShot").exists():
        tasks, read = _slices(texts), _realestate_block
    else:
        dataset = open_dataset(path, split)
        clips = range(len(dataset))
        tasks, read = _slices(clips), partial(clips_block, dataset)
    items = [Item(str(number), task) for number, task in enumerate(tasks)]
    parts = complete(run(Calls(read, f"blocks of {path.name}"), items, **work))
    found = statistics_of(path.name, [parts[item.id] for item in items], _sources_before(path))
    if not found.clips:
        detail = f" of at least {FRAMES} frames among {len(texts)} .txt files" if texts else ""
        raise ValueError(f"{path}: no clips{detail}")
    return found


def statistics_of(name: str, blocks: Sequence[Statistics], before: dict[str, int]) -> Statistics:
    """Statistics of all clips of some blocks; `before` is the number of sources by category."""
    whole: dict[str, Any] = {"left_out": sum(block.left_out for block in blocks)}
    for key in ("directions", "distances", "yfov", "xfov", "xi", "pitch", "roll"):
        whole[key] = np.concatenate([np.empty(0), *(getattr(block, key) for block in blocks)])
    for key in ("families", "variants", "categories"):
        whole[key] = sum((getattr(block, key) for block in blocks), Counter[str]())
    return Statistics(name=name, **whole, categories_before=before)


def _slices(things: Sequence[Any]) -> list[Sequence[Any]]:
    return [things[start : start + BLOCK] for start in range(0, len(things), BLOCK)]


def _rows_block(folder: Path, split: str | None, group: int) -> Statistics:
    """The clips of one row group of our table."""
    columns = ("id", "split", "poses", "lens", "family", "variant", "categories", "height", "width")
    blocks = []
    for table in read_blocks(folder / METADATA, schema(), columns, group):
        if split is not None:
            table = table.filter(compute.equal(table["split"], split))
        for name in columns:
            if table[name].null_count:
                raise ValueError(f"{folder / METADATA}: {table[name].null_count} clips have no value for {name}")
        poses, places = flat_poses(table["poses"])
        if (np.diff(places) < 1).any():
            raise ValueError(f"{folder / METADATA}: a clip has no poses")
        lenses = [parse_json(text, f"{folder / METADATA}, lens") for text in table["lens"].to_pylist()]
        if wrong := [lens for lens in lenses if not isinstance(lens, dict)]:
            raise ValueError(f"{folder / METADATA}: {wrong[0]!r} is not a lens")
        facts = (table[name].to_pylist() for name in ("height", "width", "family", "variant", "categories"))
        blocks.append(_block(poses[places[:-1]], poses[places[1:] - 1], lenses, *facts))
    return statistics_of("", blocks, {})


def clips_block(dataset: ClipDataset, indices: Sequence[int]) -> Statistics:
    """Some clips of any dataset, one by one."""
    clips = [dataset.clip(index) for index in indices]
    first, last = (np.stack([clip.camera.c2w[place, :3].flatten() for clip in clips]) for place in (0, -1))
    names = ("height", "width", "family", "variant", "categories")
    facts = ([getattr(clip, name) for clip in clips] for name in names)
    return _block(first, last, [clip.camera.lens.to_dict() for clip in clips], *facts)


def _block(
    first: np.ndarray,  # (C, 12) first poses
    last: np.ndarray,  # (C, 12) last poses
    lenses: Sequence[dict[str, Any]],
    heights: Sequence[int],
    widths: Sequence[int],
    families: Sequence[str],
    variants: Sequence[str],
    categories: Sequence[Sequence[str]],
) -> Statistics:
    starts, ends = (torch.from_numpy(np.asarray(poses, np.float64)).reshape(-1, 3, 4) for poses in (first, last))
    directions, distances = _motion(starts, ends)
    angles = angles_from_rotation(starts[:, :, :3])
    return Statistics(
        directions=directions,
        distances=distances,
        **_lens_numbers(lenses, heights, widths),
        pitch=angles.pitch.numpy(),
        roll=angles.roll.numpy(),
        families=Counter(families),
        variants=Counter(variants),
        categories=Counter(category for row in categories for category in row),
    )


def _realestate_block(texts: Sequence[Path]) -> Statistics:
    """RealEstate10K paths over their first 81 frames, in which gravity is unknown; other .txt files are skipped."""
    cameras, left_out = [], 0
    for text in texts:
        try:
            camera = Trajectory.load(text, format="realestate10k")
        except ValueError:
            continue
        if len(camera) < FRAMES:
            left_out += 1
        else:
            cameras.append(camera[:FRAMES].relative_to_first())
    paths = torch.stack([camera.c2w[:, :3] for camera in cameras]) if cameras else torch.empty(0, FRAMES, 3, 4)
    directions, distances = _motion(paths[:, 0].double(), paths[:, -1].double())
    unknown = np.full(len(cameras), np.nan)
    return Statistics(
        directions=directions,
        distances=distances,
        yfov=np.array([float(camera.lens.yfov(720, 1280).mean()) for camera in cameras]),
        xfov=np.array([float(camera.lens.xfov(720, 1280).mean()) for camera in cameras]),
        xi=np.zeros(len(cameras)),
        pitch=unknown,
        roll=unknown,
        families=Counter({"RealEstate10K": len(cameras)}),
        left_out=left_out,
    )


def _lens_numbers(lenses: Sequence[dict[str, Any]], heights: Sequence[int], widths: Sequence[int]) -> dict[str, Any]:
    """Fields of view in degrees and xi (C,) of lenses; lenses that differ only in their numbers are solved together."""
    found = {name: np.full(len(lenses), np.nan) for name in ("yfov", "xfov", "xi")}
    groups: dict[str, list[int]] = {}
    for row, content in enumerate(lenses):
        same = {name: "number" if isinstance(value, float) else value for name, value in content.items()}
        groups.setdefault(json.dumps([same, heights[row], widths[row]]), []).append(row)
    for rows in _alike(groups.values(), lenses):
        one, size = lenses[rows[0]], (heights[rows[0]], widths[rows[0]])
        varying = [name for name, value in one.items() if isinstance(value, float)]
        lens = lens_from_dict({**one, **{name: [lenses[row][name] for row in rows] for name in varying}})
        xfov = lens.parameters["xfov"] if "xfov" in lens.parameters else lens.xfov(*size)
        for name, values in (("yfov", lens.yfov(*size)), ("xfov", xfov), ("xi", _xi(lens))):
            found[name][rows] = values.reshape(len(rows) if varying else 1, -1).mean(-1).numpy()
    return found


def _alike(groups: Iterable[list[int]], lenses: Sequence[dict[str, Any]]) -> Iterator[list[int]]:
    """Groups in pieces of 64 lenses with similar numbers, so that few pieces need a search for the image circle."""
    for group in groups:
        ordered = sorted(group, key=lambda row: [value for value in lenses[row].values() if isinstance(value, float)])
        yield from (ordered[start : start + 64] for start in range(0, len(ordered), 64))


def draw_statistics(statistics: Sequence[Statistics], path: str | Path) -> None:
    """Draw the paper's figures, one row per dataset: directions, vertical field of view, lens map, pitch and roll."""
    rows = len(statistics)
    figure = new_figure(15, 3.9 * rows, layout="constrained")
    for row, values in enumerate(statistics):
        rose = figure.add_subplot(rows, 4, 4 * row + 1, projection="polar")
        _draw_rose(rose, values)
        others = [figure.add_subplot(rows, 4, 4 * row + column) for column in (2, 3, 4)]
        _draw_histogram(others[0], values.yfov, "vertical field of view (degrees)", np.arange(20, 201, 5))
        _draw_lens_map(others[1], values)
        _draw_attitude(others[2], values)
        rose.set_title(f"{values.name}: {values.clips} clips\ntranslation direction", color=INK, fontsize=11, pad=14)
    save_figure(figure, path)


def draw_categories(statistics: Statistics, path: str | Path) -> None:
    """Draw how even the categories are: of the sources before, and of the clips after."""
    draw_balance({"sources": statistics.categories_before, "clips": statistics.categories}, path)


def few_clips(folder: str | Path, split: str | None = None, count: int = 32) -> ClipDataset:
    """A few clips of one of our datasets, lens families mixed, reading only their rows; any other dataset whole."""
    folder = Path(folder)
    if not (folder / METADATA).is_file():
        return open_dataset(folder, split)
    table = read_metadata(folder, ["split", "family"])
    families, splits = table["family"].to_pylist(), table["split"].to_pylist()
    rows = [row for row, name in enumerate(splits) if split in (None, name)]
    chosen = sorted(rows[index] for index in _spread([families[row] for row in rows], count))
    return ClipDataset([clip_of_row(folder, row) for row in take_rows(folder / METADATA, schema(), chosen).to_pylist()])


def contact_sheet(dataset: ClipDataset, path: str | Path, rows: int = 8, columns: int = 4, width: int = 260) -> None:
    """Draw first frames of clips in a grid, lens families mixed, each with its lens and caption."""
    from PIL import Image, ImageDraw

    chosen = _spread(dataset.families(), rows * columns)
    cells = []
    for index in chosen:
        clip = dataset.clip(index)
        picture = Image.fromarray(dataset.video(index, frames=1)[0].numpy())
        height = round(width * picture.height / picture.width)
        cell = Image.new("RGB", (width, height + 32), "white")
        cell.paste(picture.resize((width, height), Image.Resampling.LANCZOS))
        draw = ImageDraw.Draw(cell)
        lens = clip.camera.lens.parameters
        words = f"{clip.family}  {clip.variant}"
        if "xfov" in lens and "xi" in lens:
            words += f"  {float(lens['xfov']):.0f}°, xi {float(lens['xi']):.2f}"
        draw.text((2, height + 2), words, fill=INK)
        draw.text((2, height + 16), shorten(clip.caption, width // 6, placeholder=" ..."), fill="#66727d")
        cells.append(cell)
    across = min(columns, len(cells))
    tall = max(cell.height for cell in cells)
    sheet = Image.new("RGB", (across * (width + 6) + 6, -(-len(cells) // across) * (tall + 4) + 6), "white")
    for place, cell in enumerate(cells):
        sheet.paste(cell, (6 + place % across * (width + 6), 6 + place // across * (tall + 4)))
    with atomic_file(Path(path)) as file:
        sheet.save(file, format=Path(path).suffix[1:])


def _motion(
    first: Tensor,  # (C, 3, 4)
    last: Tensor,  # (C, 3, 4)
) -> tuple[np.ndarray, np.ndarray]:
    """Horizontal direction (M,) of the way from first to last position, in degrees right of the first camera's heading
    (only of clips that move), and the way's length (C,)."""
    way = last[:, :, 3] - first[:, :, 3]
    moves = torch.hypot(way[:, 0], way[:, 2]) > 0.02
    heading = torch.atan2(first[:, 0, 2], first[:, 2, 2])
    directions = torch.rad2deg(torch.atan2(way[:, 0], way[:, 2]) - heading)[moves]
    return ((directions + 180) % 360 - 180).numpy(), way.norm(dim=-1).numpy()


def _xi(lens: Lens) -> Tensor:
    known = torch.zeros(lens.batch_shape) if lens.kind == "pinhole" else torch.full(lens.batch_shape, torch.nan)
    return lens.parameters["xi"] if lens.kind == "ucm" else known


def _sources_before(path: Path) -> dict[str, int]:
    plan = path / ".synthesis" / "plan.json"
    if not plan.is_file():
        return {}
    sources = json.loads(plan.read_text(encoding="utf-8"))["sources"]
    return dict(Counter(category for source in sources for category in source["categories"]))


def _spread(families: Sequence[str], count: int) -> list[int]:
    """Indices of up to `count` clips, taking the families in turn."""
    queues = {
        name: [index for index, family in enumerate(families) if family == name] for name in dict.fromkeys(families)
    }
    names = sorted(queues, key=lambda name: list(FAMILIES).index(name) if name in FAMILIES else 99)
    chosen: list[int] = []
    while len(chosen) < count and any(queues.values()):
        chosen += [queues[name].pop(0) for name in names if queues[name]]
    return chosen[:count]


def _draw_rose(axis: Any, values: Statistics) -> None:
    bins = np.linspace(-180, 180, 25)
    counts, _ = np.histogram(values.directions, bins)
    axis.set_theta_zero_location("N")
    axis.set_theta_direction(-1)
    axis.bar(np.radians(bins[:-1] + 7.5), counts, width=np.radians(14), color=ACCENT, alpha=0.85)
    axis.set_xticks(np.radians([0, 90, 180, 270]), ["forward", "right", "back", "left"], fontsize=8, color=INK)
    axis.set_yticklabels([])
    axis.grid(color=GRID)
    axis.spines["polar"].set_color(GRID)


def _draw_histogram(axis: Any, values: np.ndarray, label: str, bins: np.ndarray) -> None:
    values = values[np.isfinite(values)]
    axis.hist(
        values, bins=bins, color=FAMILY_COLORS["pinhole"], weights=np.full(len(values), 100 / max(len(values), 1))
    )
    axis.set_xlabel(label, color=INK)
    axis.set_ylabel("share (%)", color=INK)
    quiet_axes(axis)


def _draw_lens_map(axis: Any, values: Statistics) -> None:
    from matplotlib.patches import Rectangle

    for family in FAMILIES.values():
        color = FAMILY_COLORS[family.name]
        width, height = family.xfov[1] - family.xfov[0], max(family.xi[1] - family.xi[0], 0.03)
        corner = (family.xfov[0], family.xi[0])
        axis.add_patch(Rectangle(corner, width, height, facecolor=color, alpha=0.18, edgecolor=color))
        axis.annotate(family.name, (family.xfov[0] + 1, family.xi[1] + 0.03), fontsize=8, color=color)
    axis.scatter(values.xfov, values.xi, s=6, color=INK, alpha=0.6, linewidths=0)
    axis.set_xlim(min(85, np.nanmin(values.xfov) - 5), 205)
    axis.set_ylim(-0.1, 2.5)
    axis.set_xlabel("horizontal field of view (degrees)", color=INK)
    axis.set_ylabel("distortion ξ", color=INK)
    quiet_axes(axis)


def _draw_attitude(axis: Any, values: Statistics) -> None:
    known = np.isfinite(values.pitch)
    if known.any():
        axis.scatter(values.roll[known], values.pitch[known], s=6, color=ACCENT, alpha=0.6, linewidths=0)
    else:
        axis.text(0, 0, "the vertical is not known", ha="center", color="#8a949e")
    ticks = range(-90, 91, 45)
    axis.set(xlim=(-90, 90), ylim=(-90, 90), xticks=ticks, yticks=ticks)
    axis.set_xlabel("roll of the first frame (degrees)", color=INK)
    axis.set_ylabel("pitch (degrees)", color=INK)
    quiet_axes(axis)
