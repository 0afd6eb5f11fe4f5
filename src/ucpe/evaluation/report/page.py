"""One self-contained HTML page per run: table, distributions, best and worst videos, failures, settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from markupsafe import Markup

from ucpe.evaluation.inputs import Job, read_clip
from ucpe.evaluation.pose_metrics import least_squares_scale, relative_to_first, scaled
from ucpe.evaluation.records import camera_of_clip
from ucpe.evaluation.report.tables import COLUMNS, Column, Table, ranks, shown, shown_cell
from ucpe.evaluation.results import Results, VideoRecord
from ucpe.evaluation.run import load_record
from ucpe.pages import render_page
from ucpe.pages.drawings import COMMANDED, ESTIMATED, angle_svg, data_uri, jpeg_of, overlay, path_svg, strip_svg
from ucpe.trajectories import Trajectory
from ucpe.trajectories.rotations import rotation_angle
from ucpe.video import VideoError

SHOWN_VIDEOS = 3
"""Number of best, and of worst, videos that are drawn."""


def page(
    results: Results,
    table: Table,
    output: Path,
    jobs: Mapping[str, Job] | None = None,
    against: str = "commanded",
) -> str:
    """The page of a run; with its jobs, frames and paths of the best and worst videos are drawn."""
    return render_page(
        "evaluation/report/report.html",
        f"Camera control of {results.label}",
        subtitle=_subtitle(results),
        numbers=_tiles(results),
        table=filled_table(table),
        floors=results.floors,
        plots=_distributions(results, against),
        shown=_videos(results, output, jobs or {}, against),
        failures=results.failures,
        settings=_settings(results),
    )


def comparison_page(title: str, table: Table) -> str:
    """The page of runs side by side."""
    return render_page("evaluation/report/compare.html", title, width="1700px", table=filled_table(table))


def filled_table(table: Table) -> dict[str, Any]:
    """What a page shows of a table: headings by group, intervals, ranks, and quoted rows set apart."""
    places = ranks(table)
    rows: list[dict[str, Any]] = []
    for index, (before, row) in enumerate(zip((None, *table.rows), table.rows)):
        new = row.group != (before.group if before else "")
        kind = "quoted" if row.quoted else "floor" if row.comparable == "floor" else ""
        cells = [_cell(row, column, places.get((index, column.metric))) for column in table.columns]
        rows.append({
            "heading": row.group if new else "", "kind": kind, "label": row.label, "cells": cells, "note": row.note,
        })  # fmt: skip
    return {
        "groups": table.groups,
        "headings": [column.heading for column in table.columns],
        "rows": rows,
        "notes": table.notes,
    }


def _subtitle(results: Results) -> str:
    protocol = results.protocols[results.protocol]
    parts = [f"Protocol “{protocol['name']}”: {protocol['description']}."]
    for part, what in (("pose", "Poses"), ("calibrator", "Orientation and lens")):
        estimator = results.estimators[part]
        if estimator:
            note = f" ({estimator['note']})" if estimator.get("note") else ""
            parts.append(f"{what} by {estimator['name']}{note}.")
    return " ".join(parts)


def _tiles(results: Results) -> list[tuple[str, str]]:
    counts = results.counts
    tiles = [(str(len(results.videos)), "videos")]
    for part, what in (("pose", "with poses"), ("calibration", "calibrated")):
        if part in counts:
            tiles.append((f"{counts[part].measured} / {counts[part].attempted}", what))
    if "pose" in counts:
        poses = counts["pose"]
        lost = poses.filtered + poses.failed + poses.unreadable
        tiles.append((str(lost), "pose failures (filtered, failed, unreadable)"))
        tiles.append((f"{poses.frames_registered} / {poses.frames_attempted}", "frames placed"))
    return tiles


def _distributions(results: Results, against: str) -> list[Markup]:
    plots = []
    floors = {name: value for part in results.floors.values() for name, value in part.metrics.items()}
    for column in COLUMNS:
        groups = []
        for family in results.families:
            entries = [
                (video.name, value)
                for video in results.videos
                if video.family == family
                and (value := video.metrics(results.protocol, against).get(column.metric)) is not None
            ]
            if entries:
                groups.append((family, entries))
        if groups:
            plots.append(strip_svg(groups, _unit_title(column, results), floors.get(column.metric)))
    return plots


def _videos(results: Results, output: Path, jobs: Mapping[str, Job], against: str) -> list[tuple[str, list[Any]]]:
    """Best and worst videos by rotation error, or by pitch where no poses were estimated."""
    candidates = (("RotErr", "rotation error"), ("PitchErr", "pitch error"), ("FoVErr", "field of view error"))
    scored: list[tuple[float, VideoRecord]] = []
    what = ""
    for metric, what in candidates:  # noqa: B007
        scored = [
            (value, video)
            for video in results.videos
            if video.name in jobs and (value := video.metrics(results.protocol, against).get(metric)) is not None
        ]
        if scored:
            break
    if not scored:
        return []
    scored.sort(key=lambda pair: (pair[0], pair[1].name))
    worst = scored[::-1][:SHOWN_VIDEOS]
    best = [pair for pair in scored[:SHOWN_VIDEOS] if pair not in worst]
    protocol = results.protocol
    return [
        (heading, [_video(video, jobs[video.name], output, protocol, against) for _, video in chosen])
        for heading, chosen in ((f"Worst videos by {what}", worst), (f"Best videos by {what}", best))
        if chosen
    ]


def _video(video: VideoRecord, job: Job, output: Path, protocol: str, against: str) -> dict[str, Any]:
    metrics = video.metrics(protocol, against)
    numbers = [
        f"{column.title} {shown(metrics[column.metric], column.digits)}"
        for column in COLUMNS
        if column.metric in metrics
    ]
    drawn = {"name": video.name, "lens": str(job.camera.lens), "numbers": " · ".join(numbers), "problem": ""}
    try:
        clip = read_clip(job.video, job.name)
    except VideoError as error:
        return {**drawn, "problem": str(error)}
    camera = camera_of_clip(job.camera, clip)
    chosen = sorted({0, len(clip.frames) // 2, len(clip.frames) - 1})
    pictures = (overlay(clip.frames[index], camera[index]) if job.gravity else clip.frames[index] for index in chosen)
    addresses = [data_uri(jpeg_of(picture)) for picture in pictures]
    graphs = _graphs(load_record(output, video.name), camera, job.gravity)
    return {**drawn, "pictures": list(zip(chosen, addresses)), "graphs": graphs}


def _graphs(record: VideoRecord, camera: Trajectory, gravity: bool) -> Markup:
    graphs = []
    wanted = relative_to_first(camera.c2w.double())
    if record.pose and record.pose.status == "ok" and (estimate := record.pose.estimate):
        got = relative_to_first(estimate.c2w)
        rows = torch.from_numpy(estimate.frames)
        got = scaled(got, least_squares_scale(wanted[rows], got))
        graphs.append(path_svg(wanted, got))
        angles = [rotation_angle(poses[:, :3, :3]).numpy() for poses in (wanted, got)]
        series = [
            ("commanded", angles[0], COMMANDED),
            ("estimated", _spread(angles[1], estimate.frames, len(wanted)), ESTIMATED),
        ]
        graphs.append(angle_svg(series, "rotation from the first frame"))
    if gravity and record.calibration and (calibration := record.calibration.estimate):
        for name, angle in (("pitch", camera.angles.pitch), ("roll", camera.angles.roll)):
            estimated = _spread(getattr(calibration, name), calibration.frames, len(camera))
            series = [("commanded", angle.double().numpy(), COMMANDED), ("estimated", estimated, ESTIMATED)]
            graphs.append(angle_svg(series, name))
    return Markup("").join(graphs)


def _spread(values: np.ndarray, frames: np.ndarray, count: int) -> np.ndarray:
    """Values (count,) of all frames, from values at some frame numbers and straight lines between them."""
    return np.interp(np.arange(count), frames, values)


def _settings(results: Results) -> str:
    kept = ("versions", "protocol", "protocols", "seed", "measuring", "estimators", "floors", "quality")
    plain = results.to_json()
    return json.dumps({name: plain[name] for name in kept}, indent=1, ensure_ascii=False)


def _unit_title(column: Column, results: Results) -> str:
    protocol = results.protocols[results.protocol]
    if column.metric != "RotErr":
        return column.title
    return f"RotErr ({protocol['reduction']} over frames, {protocol['angle']})"


def _cell(row: Any, column: Column, place: int | None) -> dict[str, str]:
    value, ends = shown_cell(row, column)
    rank = {1: "first", 2: "second", 3: "third"}.get(place or 0, "")
    return {"value": value, "rank": rank, "interval": " – ".join(ends)}
