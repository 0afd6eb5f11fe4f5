"""Put a trained desk model into the form in which the package carries it.

    python -m recipes.desk.store model/model --decoder decoder/vae --data clips/ -o src/ucpe/desk/weights/model

Weights are stored in half precision, the text encoder in single. The tokenizer keeps the words that captions of the
training clips have; a prompt with others then says so.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ucpe.adapters import CameraAdapter
from ucpe.desk.clips import load_shard, shard_paths
from ucpe.files import write_file
from ucpe.generation.loading import ADAPTER_FOLDER

SPECIAL = ("<pad>", "</s>", "<unk>")


@dataclass
class Options:
    """Store a trained desk model."""

    model: tyro.conf.Positional[Path]
    """Pipeline folder with its adapter."""
    data: Path
    """Folder of the clips that it was trained on."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """Folder of the package's weights."""
    decoder: Path | None = None
    """Autoencoder with the same encoder and a better decoder."""


def main() -> None:
    """Write the pipeline."""
    from diffusers import AutoencoderKLWan, WanPipeline

    options = tyro.cli(Options)
    pipe: Any = WanPipeline.from_pretrained(options.model)
    if options.decoder is not None:
        pipe.register_modules(vae=AutoencoderKLWan.from_pretrained(options.decoder))
    adapter: Any = CameraAdapter.from_pretrained(options.model / ADAPTER_FOLDER)
    for part in (pipe.transformer, pipe.vae, adapter):
        part.half()
    pipe.text_encoder.float()
    pipe.save_pretrained(options.output)
    adapter.save_pretrained(options.output / ADAPTER_FOLDER)
    defaults = (options.model / "generation.json").read_text(encoding="utf-8")
    write_file(options.output / "generation.json", defaults)
    for path in options.output.rglob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("_name_or_path", None) is not None:  # a path of the machine that trained it
            write_file(path, json.dumps(content, indent=2) + "\n")
    words = trained_words(options.data)
    keep_words(options.output / "tokenizer" / "tokenizer.json", words)
    print(f"{len(words)} words: {', '.join(sorted(words))}")


def trained_words(folder: Path) -> set[str]:
    """Words of the captions of all clips of a folder."""
    captions = (caption for path in shard_paths(folder) for caption in load_shard(path).captions)
    return {word for caption in captions for word in re.findall(r"\w+", caption.lower())}


def keep_words(path: Path, words: set[str]) -> None:
    """Take all other words out of a tokenizer's file; those that stay keep their numbers."""
    content = json.loads(path.read_text(encoding="utf-8"))
    known = content["model"]["vocab"]
    content["model"]["vocab"] = {word: number for word, number in known.items() if word in words or word in SPECIAL}
    write_file(path, json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
