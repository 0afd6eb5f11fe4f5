"""`ucpe adapter`: how large adapters are, what one holds, and released checkpoints in and out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ucpe.cli.parsing import parse


@dataclass
class Info:
    """List the trained parameters of the paper's configurations, beside its numbers, or show what one adapter holds."""

    path: Annotated[str | None, tyro.conf.Positional] = None
    """Folder, hub id or released .bin of an adapter; without it, the paper's configurations."""

    preset: Literal["wan2.1-1.3b", "wan2.1-14b", "wan2.1-i2v-14b", "wan2.2-ti2v-5b"] = "wan2.1-1.3b"
    """Transformer that the paper's configurations are put on."""

    def run(self) -> None:
        """Print the sizes, or what an adapter holds."""
        _describe(self.path) if self.path else _list_sizes(self.preset)


@dataclass
class Import:
    """Turn released weights, the paper's or SCoPE's, into an adapter folder."""

    checkpoint: Annotated[str, tyro.conf.Positional]
    """The paper's .bin file, or SCoPE's folder of an expert (high_noise_model)."""

    output: Annotated[str, tyro.conf.Positional]
    """Folder to write."""

    encoding: Literal["ucpe", "prope", "gta", "cape"] = "ucpe"
    """Encoding that the checkpoint was trained with; the file does not say."""

    placement: Literal["parallel", "pre", "post"] = "parallel"
    """Where the branch sits; the file does not say."""

    def run(self) -> None:
        """Write the adapter folder."""
        from ucpe.adapters import Adapter, CameraAdapter, SCoPE

        adapter: Adapter
        if Path(self.checkpoint).is_dir():
            adapter = SCoPE.from_released(self.checkpoint)
        else:
            told = {"encoding": self.encoding, "placement": self.placement}
            adapter = CameraAdapter.from_released(self.checkpoint, **told)
        adapter.save_pretrained(self.output)
        print(f"{self.output}: {sum(p.numel() for p in adapter.parameters()):,} parameters")


@dataclass
class Export:
    """Write an adapter as a checkpoint that the paper's released code loads."""

    path: Annotated[str, tyro.conf.Positional]
    """Folder or hub id of the adapter."""

    output: Annotated[str, tyro.conf.Positional]
    """The .bin file to write."""

    def run(self) -> None:
        """Write the checkpoint."""
        from ucpe.adapters import CameraAdapter

        CameraAdapter.from_pretrained(self.path).export_released(self.output)
        print(self.output)


def main(arguments: list[str]) -> None:
    """Run `ucpe adapter info | import | export`."""
    parse({"info": Info, "import": Import, "export": Export}, arguments, "ucpe adapter").run()


def _list_sizes(preset: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from ucpe.adapters.sizes import PAPER_PIPELINE, adapter_sizes, preset_transformer

    transformer = preset_transformer(preset)
    base = sum(parameter.numel() for parameter in transformer.parameters())
    the_paper = preset == "wan2.1-1.3b"
    table = Table(title=f"Trained parameters on {preset} ({base:,} in the transformer)")
    columns = ["configuration", "heads", "trained", "of the transformer"]
    for column in [*columns, *(["of the 7.3 B pipeline", "paper"] if the_paper else [])]:
        table.add_column(column, justify="left" if column == "configuration" else "right")
    for size in adapter_sizes(transformer):
        row = [size.name, size.heads, f"{size.trained:,}", f"{size.trained / base:.2%}"]
        table.add_row(*row, *([f"{size.trained / PAPER_PIPELINE:.2%}", size.paper] if the_paper else []))
    Console().print(table)


def _describe(path: str) -> None:
    from ucpe.adapters import CameraAdapter, load_adapter

    adapter = load_adapter(path)
    print(f"{type(adapter).__name__}: {sum(p.numel() for p in adapter.parameters()):,} parameters of its own")
    if isinstance(adapter, CameraAdapter):
        print(f"  branch: {adapter.heads} head(s) of {adapter.head_dim}")
    for name, value in adapter.config.items():
        if not name.startswith("_") and value is not None:
            print(f"  {name}: {value}")
