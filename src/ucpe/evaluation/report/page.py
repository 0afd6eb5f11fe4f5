"""One self-contained HTML page per run: table, distributions, best and worst videos, failures, settings."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ucpe.evaluation.estimators.base import calibration_from_plain, pose_from_plain
from ucpe.evaluation.inputs import Job, read_clip
from ucpe.evaluation.pose_metrics import least_squares_scale, relative_to_first, scaled
from ucpe.evaluation.records import camera_of_clip
from ucpe.evaluation.report.drawings import (
    COMMANDED,
    ESTIMATED,
    angle_svg,
    data_uri,
    overlay,
    path_svg,
    strip_svg,
)
from ucpe.evaluation.report.tables import COLUMNS, Column, Table, digits_of, ranks, shown
from ucpe.evaluation.run import load_record
from ucpe.video import VideoError

SHOWN_VIDEOS = 3
"""How many of the best and of the worst videos are drawn."""

STYLE = """
:root { color-scheme: light dark; --paper: #fbfaf7; --ink: #23211d; --soft: #6d685f; --line: #ddd8cd; --panel: #fff;
  --commanded: #1f6f8b; --estimated: #d1495b; --first: #bfe3c0; --second: #e4f0d0; --third: #f6efcf; --quote: #f1ede4; }
@media (prefers-color-scheme: dark) { :root { --paper: #17181a; --ink: #e9e6df; --soft: #a29d93; --line: #35363a;
  --panel: #1f2124; --commanded: #59b3d0; --estimated: #f0808c; --first: #2b5a37; --second: #3f5330; --third: #57502a;
  --quote: #26282b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.2rem 1.4rem 5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; } h2 { font-size: 1.2rem; margin: 2.6rem 0 .7rem; }
p { margin: .5rem 0; max-width: 76ch; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { padding: .42rem .5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 9rem; }
th { font-weight: 600; } thead tr:first-child th { text-align: center; color: var(--soft); font-weight: 500; }
tbody tr:last-child td { border-bottom: 0; }
tr.quoted td { background: var(--quote); color: var(--soft); } tr.quoted td:first-child { font-style: italic; }
tr.floor td { color: var(--soft); } td.left, th.left { text-align: left; white-space: normal; }
.interval { display: block; color: var(--soft); font-size: .72rem; font-weight: 400; }
.first { background: var(--first) !important; font-weight: 700; } .second { background: var(--second) !important; }
.third { background: var(--third) !important; }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .6rem 1rem; }
.tile b { display: block; font-size: 1.25rem; } .tile span { color: var(--soft); font-size: .85rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); gap: 1rem; }
.plots > div, .video { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .9rem; }
.video { margin: 1rem 0; } .video h3 { margin: 0 0 .1rem; font-size: 1rem; overflow-wrap: anywhere; }
.frames { display: grid; grid-template-columns: repeat(3, 1fr); gap: .5rem; margin: .6rem 0; }
.frames img { width: 100%; border-radius: 4px; display: block; }
.graphs { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; } .graphs svg { max-width: 250px; }
svg { width: 100%; height: auto; display: block; font: 11px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .tick { fill: var(--soft); font-size: 10px; } svg .caption { font-weight: 600; }
.grid { stroke: var(--line); stroke-width: 1; fill: none; } .dot { fill: var(--commanded); fill-opacity: .6; }
.median { stroke: var(--estimated); stroke-width: 2.5; } .floor { stroke: var(--soft); stroke-dasharray: 4 3; }
.key { display: inline-block; width: 1.6em; border-top: 3px solid; vertical-align: middle; margin: 0 .3em 0 .8em; }
.key.dashed { border-top-style: dashed; } details { margin: .6rem 0; } summary { cursor: pointer; }
pre { overflow-x: auto; background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .8rem;
  font-size: .8rem; }
@media (max-width: 640px) { .frames { grid-template-columns: 1fr; } }
"""


def page(
    results: dict[str, Any],
    table: Table,
    output: Path,
    jobs: Mapping[str, Job] | None = None,
    against: str = "commanded",
) -> str:
    """The page of a run; with its jobs, frames and paths of the best and worst videos are drawn."""
    title = f"Camera control of {results['label']}"
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p class='soft'>{html.escape(_subtitle(results))}</p>",
        _tiles(results),
        "<h2>Results</h2>",
        table_html(table),
        *(f"<p class='soft'>{html.escape(note)}</p>" for note in table.notes),
        "<h2>Errors by lens</h2>",
        "<p class='soft'>Each dot is a video, the bar its lens family's median"
        + (", the dashed line the estimator's own error." if results["floors"] else ".")
        + "</p>",
        _distributions(results, against),
        *_videos(results, output, jobs or {}, against),
        _failures(results),
        _settings(results),
    ]
    return document(title, "\n".join(sections))


def document(title: str, body: str, width: str = "1240px") -> str:
    """A whole page without anything from elsewhere."""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>"
        f"<body style='max-width: {width}'>\n{body}\n</body></html>\n"
    )


def table_html(table: Table) -> str:
    """A table with group headings, intervals, ranks by colour, and quoted rows set apart."""
    columns, places = table.columns, ranks(table)
    groups: list[tuple[str, int]] = []
    for column in columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    head = "".join(f"<th colspan='{count}'>{html.escape(name)}</th>" for name, count in groups)
    titles = "".join(f"<th>{html.escape(_heading(column))}</th>" for column in columns)
    rows = []
    group = ""
    for index, row in enumerate(table.rows):
        if row.group != group:
            group = row.group
            rows.append(f"<tr><td colspan='{len(columns) + 2}' class='soft left'>{html.escape(group)}</td></tr>")
        kind = "quoted" if row.quoted else "floor" if row.comparable == "floor" else ""
        cells = "".join(_cell(row, column, places.get((index, column.metric))) for column in columns)
        rows.append(f"<tr class='{kind}'><td>{html.escape(row.label)}</td>{cells}<td>{html.escape(row.note)}</td></tr>")
    return (
        f"<div class='scroll'><table><thead><tr><th></th>{head}<th></th></tr>"
        f"<tr><th>Method</th>{titles}<th>Videos</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _subtitle(results: dict[str, Any]) -> str:
    protocol = results["protocols"][results["protocol"]]
    parts = [f"Protocol “{protocol['name']}”: {protocol['description']}."]
    for part, what in (("pose", "Poses"), ("calibrator", "Orientation and lens")):
        estimator = results["estimators"][part]
        if estimator:
            note = f" ({estimator['note']})" if estimator.get("note") else ""
            parts.append(f"{what} by {estimator['name']}{note}.")
    return " ".join(parts)


def _tiles(results: dict[str, Any]) -> str:
    counts = results["counts"]
    tiles = [(str(counts["videos"]), "videos")]
    for part, what in (("pose", "with poses"), ("calibration", "calibrated")):
        if part in counts:
            tiles.append((f"{counts[part]['measured']} / {counts[part]['attempted']}", what))
    if "pose" in counts:
        lost = counts["pose"]["filtered"] + counts["pose"]["failed"] + counts["pose"]["unreadable"]
        tiles.append((str(lost), "pose failures (filtered, failed, unreadable)"))
        frames = counts["pose"]
        tiles.append((f"{frames['frames_registered']} / {frames['frames_attempted']}", "frames placed"))
    return (
        "<div class='tiles'>"
        + "".join(f"<div class='tile'><b>{a}</b><span>{b}</span></div>" for a, b in tiles)
        + "</div>"
    )


def _distributions(results: dict[str, Any], against: str) -> str:
    plots = []
    floors = {name: value for part in results["floors"].values() for name, value in part["metrics"].items()}
    for column in COLUMNS:
        groups = []
        for family in results["families"]:
            entries = [
                (video["name"], value)
                for video in results["videos"]
                if video["family"] == family
                and (value := _value(video, column.metric, results["protocol"], against)) is not None
            ]
            if entries:
                groups.append((family, entries))
        if groups:
            plots.append(f"<div>{strip_svg(groups, _unit_title(column, results), floors.get(column.metric))}</div>")
    return f"<div class='plots'>{''.join(plots)}</div>" if plots else "<p>Nothing could be measured.</p>"


def _videos(results: dict[str, Any], output: Path, jobs: Mapping[str, Job], against: str) -> list[str]:
    """Best and worst videos by rotation error, or by pitch where no poses were estimated."""
    candidates = (("RotErr", "rotation error"), ("PitchErr", "pitch error"), ("FoVErr", "field of view error"))
    scored: list[tuple[float, dict[str, Any]]] = []
    what = ""
    for metric, what in candidates:  # noqa: B007
        scored = [
            (value, video)
            for video in results["videos"]
            if video["name"] in jobs and (value := _value(video, metric, results["protocol"], against)) is not None
        ]
        if scored:
            break
    if not scored:
        return []
    scored.sort(key=lambda pair: (pair[0], pair[1]["name"]))
    worst = scored[::-1][:SHOWN_VIDEOS]
    best = [pair for pair in scored[:SHOWN_VIDEOS] if pair not in worst]
    legend = (
        f"<p class='soft'>Over the frames: the horizon the command asks for (yellow), latitudes every 30° and the up "
        f"directions (arrows). A video that obeys has its own horizon there. Paths from above and angles:"
        f"<span class='key' style='border-color: {COMMANDED}'></span>commanded"
        f"<span class='key dashed' style='border-color: {ESTIMATED}'></span>estimated.</p>"
    )
    sections = []
    for heading, chosen in ((f"Worst videos by {what}", worst), (f"Best videos by {what}", best)):
        if chosen:
            sections.append(f"<h2>{heading}</h2>{legend}")
            sections += [
                _video(video, jobs[video["name"]], output, results["protocol"], against) for _, video in chosen
            ]
            legend = ""
    return sections


def _video(video: dict[str, Any], job: Job, output: Path, protocol: str, against: str) -> str:
    numbers = [
        f"{column.title} {shown(value, column.digits)}"
        for column in COLUMNS
        if (value := _value(video, column.metric, protocol, against)) is not None
    ]
    parts = [f"<h3>{html.escape(video['name'])}</h3>", f"<p class='soft'>{html.escape(str(job.camera.lens))}</p>"]
    parts.append(f"<p>{html.escape(' · '.join(numbers))}</p>")
    try:
        clip = read_clip(job.video, job.name)
    except VideoError as error:
        return f"<div class='video'>{''.join(parts)}<p>{html.escape(str(error))}</p></div>"
    camera = camera_of_clip(job.camera, clip)
    chosen = sorted({0, len(clip.frames) // 2, len(clip.frames) - 1})
    if job.gravity:
        pictures = [overlay(clip.frames[index], camera[index]) for index in chosen]
    else:
        pictures = [clip.frames[index] for index in chosen]
    images = "".join(f"<img alt='frame {index}' src='{data_uri(picture)}'>" for index, picture in zip(chosen, pictures))
    parts.append(f"<div class='frames'>{images}</div>")
    parts.append(f"<div class='graphs'>{_graphs(load_record(output, video['name']), camera, job.gravity)}</div>")
    return f"<div class='video'>{''.join(parts)}</div>"


def _graphs(record: dict[str, Any], camera: Any, gravity: bool) -> str:
    graphs = []
    wanted = relative_to_first(camera.c2w.double())
    if record.get("pose", {}).get("status") == "ok":
        estimate = pose_from_plain(record["pose"]["estimate"])
        got = relative_to_first(estimate.c2w)
        rows = torch.from_numpy(estimate.frames)
        got = scaled(got, least_squares_scale(wanted[rows], got))
        graphs.append(path_svg(wanted, got))
        angles = [np.degrees(_turned(poses)) for poses in (wanted, got)]
        series = [
            ("commanded", angles[0], COMMANDED),
            ("estimated", _spread(angles[1], estimate.frames, len(wanted)), ESTIMATED),
        ]
        graphs.append(angle_svg(series, "rotation from the first frame"))
    if gravity and record.get("calibration", {}).get("status") == "ok":
        calibration = calibration_from_plain(record["calibration"]["estimate"])
        for name, angle in (("pitch", camera.angles.pitch), ("roll", camera.angles.roll)):
            estimated = _spread(getattr(calibration, name), calibration.frames, len(camera))
            series = [("commanded", angle.double().numpy(), COMMANDED), ("estimated", estimated, ESTIMATED)]
            graphs.append(angle_svg(series, name))
    return "".join(graphs)


def _turned(poses: torch.Tensor) -> np.ndarray:
    """Angle (N,) in radians from the first frame."""
    trace = poses[:, :3, :3].diagonal(dim1=-2, dim2=-1).sum(-1)
    return torch.arccos(((trace - 1) / 2).clamp(-1, 1)).numpy()


def _spread(values: np.ndarray, frames: np.ndarray, count: int) -> np.ndarray:
    """Values at their frame numbers, on straight lines between."""
    return np.interp(np.arange(count), frames, values)


def _failures(results: dict[str, Any]) -> str:
    if not results["failures"]:
        return "<h2>Failures</h2><p>None: every video was measured.</p>"
    rows = "".join(
        "<tr>"
        + "".join(f"<td class='left'>{html.escape(entry[key])}</td>" for key in ("name", "part", "status", "reason"))
        + "</tr>"
        for entry in results["failures"]
    )
    return (
        "<h2>Failures</h2><p class='soft'>Not in the means; the row “failures as worst case” counts them.</p>"
        "<div class='scroll'><table><thead><tr><th class='left'>Video</th><th class='left'>Part</th>"
        f"<th class='left'>Status</th><th class='left'>Reason</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _settings(results: dict[str, Any]) -> str:
    kept = ("versions", "protocol", "protocols", "seed", "measuring", "estimators", "floors", "quality")
    text = json.dumps({name: results[name] for name in kept}, indent=1, ensure_ascii=False)
    return (
        "<h2>How it was measured</h2><details><summary>Versions, protocols, estimators, floors</summary>"
        f"<pre>{html.escape(text)}</pre></details>"
    )


def _value(video: dict[str, Any], metric: str, protocol: str, against: str) -> float | None:
    pose, calibration = video.get("pose", {}), video.get("calibration", {})
    if pose.get("status") == "ok" and metric in pose["metrics"][protocol]:
        return pose["metrics"][protocol][metric]
    if calibration.get("status") == "ok":
        return calibration.get("metrics" if against == "commanded" else "against_reference", {}).get(metric)
    return None


def _heading(column: Column) -> str:
    return f"{column.title} {'↑' if column.more_is_better else '↓'}"


def _unit_title(column: Column, results: dict[str, Any]) -> str:
    protocol = results["protocols"][results["protocol"]]
    if column.metric != "RotErr":
        return column.title
    return f"RotErr ({protocol['reduction']} over frames, {protocol['angle']})"


def _cell(row: Any, column: Column, place: int | None) -> str:
    if column.metric not in row.cells:
        return "<td>–</td>"
    cell = row.cells[column.metric]
    rank = {1: " class='first'", 2: " class='second'", 3: " class='third'"}.get(place or 0, "")
    interval = ""
    if cell.low is not None and cell.high is not None:
        low, high = shown(cell.low, column.digits), shown(cell.high, column.digits)
        interval = f"<span class='interval'>{low} – {high}</span>"
    return f"<td{rank}>{shown(cell.value, digits_of(row, column))}{interval}</td>"


__all__: Sequence[str] = ("document", "page", "table_html")
