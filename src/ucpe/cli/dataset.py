"""`ucpe dataset`: statistics, captions and export of a dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from ucpe.cli.parsing import parse
from ucpe.work import EngineOptions, WorkOptions, progress_bar


@dataclass
class Stats:
    """Print numbers and draw the paper's figures of datasets, and of folders of RealEstate10K files for comparison."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Dataset folders (ours or PanShot's), folders of RealEstate10K .txt files."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for the figures. [default: FIRST/statistics]"""
    split: str | None = None
    """Use only this split. [default: all]"""
    work: Annotated[EngineOptions, tyro.conf.arg(name="")] = field(default_factory=EngineOptions)

    def run(self) -> None:
        """Print and draw the statistics of folders."""
        from ucpe.synthesis.statistics import contact_sheet, draw_categories, draw_statistics, few_clips, gather

        if not self.folders:
            raise ValueError("name the folders to gather numbers from: ucpe dataset stats FOLDER ...")
        with progress_bar() as show:
            gathered = [gather(folder, self.split, progress=show, **vars(self.work)) for folder in self.folders]
        output = self.output or self.folders[0] / "statistics"
        draw_statistics(gathered, output / "cameras.png")
        written = ["cameras.png"]
        for folder, values in zip(self.folders, gathered):
            if values.categories:
                draw_categories(values, output / f"categories-{values.name}.png")
                written.append(f"categories-{values.name}.png")
            if values.variants:
                contact_sheet(few_clips(folder, self.split), output / f"sheet-{values.name}.png")
                written.append(f"sheet-{values.name}.png")
        for values in gathered:
            print(f"{values.name}: {json.dumps(values.summary(), indent=2)}")
        print(f"{output}: {', '.join(written)}")


@dataclass
class Export:
    """Write WebDataset shards: ID.mp4, ID.txt and ID.json in tar files."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Dataset to export."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("shards")
    """Folder for the shards."""
    shard_clips: int = 100
    """Number of clips in each shard."""
    split: str | None = None
    """Use only this split. [default: all]"""
    work: Annotated[WorkOptions, tyro.conf.arg(name="")] = field(default_factory=WorkOptions)

    def run(self) -> None:
        """Write the shards."""
        from ucpe.synthesis.dataset import export_webdataset, open_dataset

        dataset = open_dataset(self.folder, self.split)
        with progress_bar() as show:
            shards = export_webdataset(dataset, self.output, self.shard_clips, progress=show, **vars(self.work))
        print(f"{self.output}: {len(shards)} shards")


@dataclass
class Caption:
    """Caption the clips that have no caption, through an OpenAI-compatible endpoint (vLLM serves one)."""

    folder: Annotated[Path, tyro.conf.Positional]
    """Dataset to caption."""
    url: str
    """Base address, e.g. http://localhost:8000/v1. The key is read from OPENAI_API_KEY."""
    model: str
    """Model the endpoint should use."""
    again: bool = False
    """Also replace existing captions."""
    dry_run: bool = False
    """Show what would be sent, and send nothing."""
    work: Annotated[WorkOptions, tyro.conf.arg(name="")] = field(default_factory=WorkOptions)

    def run(self) -> None:
        """Caption the clips, or show the first request."""
        caption(self.folder, self.url, self.model, self.work, again=self.again, dry_run=self.dry_run)


def main(arguments: Sequence[str]) -> None:
    """Parse the command line and run the subcommand."""
    parse({"stats": Stats, "export": Export, "caption": Caption}, arguments, "ucpe dataset").run()


def caption(
    folder: Path, url: str, model: str, work: WorkOptions, *, again: bool = False, dry_run: bool = False
) -> None:
    """Caption a dataset, or show the first request."""
    from ucpe.synthesis.captions import EndpointCaptioner, caption_dataset
    from ucpe.synthesis.dataset import open_dataset

    captioner = EndpointCaptioner(url, model)
    if dry_run:
        dataset = open_dataset(folder)
        waiting = [index for index in range(len(dataset)) if again or not dataset.clip(index).caption]
        print(f"{len(waiting)} of {len(dataset)} clips would be sent to {url}")
        if waiting:
            body = captioner.request(dataset.clip(waiting[0]).video)
            images = body["messages"][1]["content"][:-1]
            size = len(json.dumps(body)) / 1024
            print(f"each as {len(images)} JPEG images of {captioner.height} rows, {size:.0f} kB, with this text:")
            print(f"  {body['messages'][0]['content']}\n  {body['messages'][1]['content'][-1]['text']}")
        return
    with progress_bar() as show:
        failures = caption_dataset(folder, captioner, again=again, progress=show, **vars(work))
    for name, reason in failures.items():
        print(f"  {name}: {reason}")
    if failures:
        raise ValueError(f"{len(failures)} clips have no caption; --retry-failed tries them again")
