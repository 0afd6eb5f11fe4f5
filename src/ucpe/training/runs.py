"""A whole run: clips found and encoded, the model loaded, trained, and written where generation finds it."""

from __future__ import annotations

import json
import runpy
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from accelerate import Accelerator, DistributedType
from accelerate.utils import gather_object

from ucpe.files import write_json
from ucpe.synthesis.dataset import ClipDataset
from ucpe.training.base_models import BaseModel
from ucpe.training.clips import open_source
from ucpe.training.encoded import EncodedClips, encode_missing
from ucpe.training.export import export, video_sampler
from ucpe.training.loop import make_accelerator, train
from ucpe.training.recipes import RECIPES, Recipe
from ucpe.training.steps import planned_clips
from ucpe.work import WorkOptions, folder_lock, progress_bar

CLIPS_FILE = "clips.json"


def find_recipe(name: str) -> Recipe:
    """A recipe by name, or from a Python file that defines `recipe()`."""
    if name.endswith(".py"):
        if not Path(name).is_file():
            raise ValueError(f"there is no file {name}")
        found = runpy.run_path(name).get("recipe")
        made = found() if callable(found) else found
        if not isinstance(made, Recipe):
            raise ValueError(f"{name} must define a function recipe() that returns a ucpe.training.recipes.Recipe")
        return made
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}; there are {', '.join(RECIPES)}, or a .py file of your own")
    return RECIPES[name]


def run(
    recipe: Recipe,
    data: Path,
    output: Path,
    *,
    validation: Path | None = None,
    cache: Path | None = None,
    tracker: str | None = "tensorboard",
    skip_broken: bool = False,
    encoding: WorkOptions | None = None,
    encode_only: bool = False,
    quiet: bool = False,
    goes_on: Callable[[], bool] = lambda: True,
) -> Path:
    """Train by a recipe on a folder of clips; the same call again continues. Returns the folder of the result.

    With `encode_only` it ends when all clips are encoded, and returns where they are kept.
    Where `goes_on`, asked after every step, says no, the state is kept and `ucpe.work.OutOfTime` raised.
    """
    model = BaseModel(recipe)
    accelerator = make_accelerator(recipe, output, _available(tracker))
    if accelerator.distributed_type == DistributedType.FSDP and (recipe.samples or recipe.train_base):
        raise ValueError("weights sharded by FSDP make no samples and no base model: set --samples 0, or use DDP")
    with folder_lock(output) if accelerator.is_main_process else nullcontext():
        how = Encoder(model, accelerator, encoding or WorkOptions(), skip_broken, quiet)
        clips = EncodedClips(open_source(data), model, cache or data / "encoded")
        how.encode(clips, lambda: [clips.numbers[index] for index in planned_clips(recipe, len(clips))])
        if accelerator.is_main_process:
            note_clips(clips, output)
        held_out = open_validation(data, validation)
        fixed = None
        if held_out is not None:
            fixed = EncodedClips(held_out, model, cache or (validation or data) / "encoded")
            how.encode(fixed, lambda: list(fixed.numbers[: recipe.validation_clips]))
        if encode_only:
            return clips.videos.folder.parent
        denoiser = model.denoiser()
        sample = None
        if fixed is not None and recipe.samples:
            sample = video_sampler(recipe, model, denoiser, fixed, output)
        trained = train(
            recipe,
            denoiser,
            clips,
            output,
            validation=fixed,
            accelerator=accelerator,
            sample=sample,
            quiet=quiet,
            goes_on=goes_on,
        )
        result = export(recipe, model, trained, output, accelerator)
    accelerator.end_training()
    return result


def note_clips(clips: EncodedClips, output: Path) -> None:
    """Write down how many clips a run draws from; a run continued with another number draws others from here on."""
    path = output / CLIPS_FILE
    if path.exists() and (before := json.loads(path.read_text())["clips"]) != len(clips):
        warnings.warn(
            f"{output} began with {before} clips, there are {len(clips)} now: the rest draws from all of them"
        )
    write_json(path, {"clips": len(clips)})


@dataclass(frozen=True)
class Encoder:
    """Encodes the clips of a run: processes that train together divide them; on a cluster, one process submits all."""

    model: BaseModel
    accelerator: Accelerator
    work: WorkOptions
    skip_broken: bool
    quiet: bool

    def encode(self, clips: EncodedClips, wanted: Callable[[], list[int]]) -> None:
        """Encode the clips that are wanted; broken ones end the run, or are never drawn with `skip_broken`."""
        while True:
            if not len(clips):
                raise ValueError("no clip is left to train on: all that there are cannot be read")
            numbers = wanted()
            broken = dict(gather_object(list(self._encode(clips, numbers).items())))
            if not broken:
                return
            if not self.skip_broken:
                listed = "\n  ".join(reason for _, reason in sorted(broken.items()))
                raise ValueError(
                    f"{len(broken)} of {len(numbers)} clips cannot be read; the others are encoded and kept:\n  "
                    f"{listed}\nReplace them and run the same command again (--encoding.retry-failed tries the same "
                    "files again), or add --skip-broken to train without them."
                )
            clips.leave_out(broken)

    def _encode(self, clips: EncodedClips, numbers: list[int]) -> dict[int, str]:
        """Encode this process's share; which clips of it are broken, and why."""
        main = self.accelerator.is_main_process
        share = (self.accelerator.process_index, self.accelerator.num_processes)
        if self.work.engine != "local":
            if not main:
                return {}
            share = (0, 1)
        with progress_bar(shown=main and not self.quiet) as show:
            return encode_missing(
                clips, self.model, numbers, self.accelerator.device, *share, progress=show, **vars(self.work)
            )


def open_validation(data: Path, validation: Path | None) -> ClipDataset | None:
    """Clips to validate on: from the given folder, else the test split of the data, else none."""
    if validation is not None:
        try:
            return open_source(validation, "test")
        except ValueError:
            return open_source(validation, "train")
    if any(data.glob("clips-*.safetensors")):
        return None
    try:
        return open_source(data, "test")
    except ValueError:
        return None


def _available(tracker: str | None) -> str | None:
    """The tracker, or None with a word on it where its library is missing."""
    if tracker in (None, "none"):
        return None
    from accelerate.tracking import get_available_trackers

    if tracker not in [str(name) for name in get_available_trackers()]:
        print(f"{tracker} is not installed (`pip install {tracker}`): the curve is in metrics.jsonl only")
        return None
    return tracker
