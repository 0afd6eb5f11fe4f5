"""Base models from a folder or the hub, in the parts that training needs at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ucpe import desk
from ucpe.adapters import Adapter, CameraAdapter, CameraCtrl, ReCamMaster, SanaWMCamera, load_adapter
from ucpe.adapters.hub import hub_folder
from ucpe.adapters.sizes import PRESETS
from ucpe.desk import model as desk_parts
from ucpe.files import file_fingerprint, fingerprint_of
from ucpe.generation.loading import ADAPTER_FOLDER
from ucpe.training.denoiser import Denoiser, PromptEncoder
from ucpe.training.recipes import DESK, SANA_WM, WAN, WAN_I2V, Recipe
from ucpe.training.world_models import WorldModelDenoiser, WorldModelPromptEncoder

ADAPTERS: dict[str, type[Adapter]] = {
    "camera": CameraAdapter,
    "recammaster": ReCamMaster,
    "cameractrl": CameraCtrl,
    "sana-wm": SanaWMCamera,
}

TRANSFORMERS: dict[str, dict[str, Any]] = {
    WAN: PRESETS["wan2.1-1.3b"],
    WAN_I2V: PRESETS["wan2.1-i2v-14b"],
    SANA_WM: {"_class_name": "SanaWMTransformer3DModel"},
}
"""Constructor arguments of published transformers, to size a run before they are downloaded."""

PIPELINE_FILES = ("*.json", "*.safetensors", "*.model", "*.txt")
"""Files of a pipeline's repository on the hub that are needed."""

DTYPES = {"no": torch.float32, "bf16": torch.bfloat16}


class BaseModel:
    """A pipeline folder of diffusers, whose parts are loaded when asked for."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.fresh = recipe.model == DESK and recipe.train_base
        self.folder = None if self.fresh else find_folder(recipe.model)
        self._check_expert()
        if self.fresh and recipe.autoencoder is None:
            raise ValueError(
                f"a model trained from scratch needs an autoencoder: add `--autoencoder {desk.WEIGHTS / 'vae'}`, which "
                "is the desk model's, or one that recipes/desk/autoencoder.py has trained"
            )

    @property
    def pipeline_config(self) -> dict[str, Any]:
        """What model_index.json says."""
        if self.folder is None:
            return {"_class_name": "WanPipeline", "expand_timesteps": True}
        return json.loads((self.folder / "model_index.json").read_text())

    @property
    def expand_timesteps(self) -> bool:
        """Whether a given first frame may have a timestep of its own (Wan2.2 TI2V, the desk model, SANA-WM)."""
        return self.world_model or bool(self.pipeline_config.get("expand_timesteps"))

    @property
    def world_model(self) -> bool:
        """Whether this is SANA-WM, whose parts are other classes than Wan's."""
        return self.pipeline_config["_class_name"] == "SanaWMPipeline"

    @property
    def image_encoder(self) -> bool:
        """Whether first frames also go through CLIP (Wan2.1 I2V)."""
        return bool((self.pipeline_config.get("image_encoder") or [None])[0])

    @property
    def transformer_config(self) -> dict[str, Any]:
        """Constructor arguments of the transformer."""
        if self.folder is None:
            return desk_parts.transformer_config(self.latent_channels)
        return json.loads((self._part("transformer") / "config.json").read_text())

    @property
    def latent_channels(self) -> int:
        """Channels of the autoencoder's latents."""
        return json.loads((self._part("vae") / "config.json").read_text())["z_dim"]

    @property
    def concatenates_image(self) -> bool:
        """Whether the first frame comes as channels beside the latents (Wan2.1 I2V)."""
        config = self.transformer_config
        return not self.world_model and config.get("in_channels", 16) != config.get("out_channels", 16)

    def _check_expert(self) -> None:
        """ValueError unless the recipe names a transformer exactly if the model has two."""
        two = bool((self.pipeline_config.get("transformer_2") or [None])[0])
        if two and self.recipe.expert is None:
            boundary = self.pipeline_config.get("boundary_ratio") or 0.875
            raise ValueError(
                f"{self.recipe.model} has two transformers, each with an adapter of its own: train one with --expert "
                f"transformer --min-level {boundary:g}, then the other with --expert transformer_2 "
                f"--max-level {boundary:g}"
            )
        if self.recipe.expert == "transformer_2" and not two:
            raise ValueError(f"{self.recipe.model} has one transformer: leave --expert out")

    def fingerprint(self, *parts: str) -> str:
        """Short name of the weights of some parts, found without loading them."""
        files = [
            [part, path.relative_to(folder).as_posix(), file_fingerprint(path)]
            for part, folder in ((part, self._part(part)) for part in parts)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in (".json", ".safetensors", ".bin", ".model")
        ]
        return fingerprint_of(files)[:16]

    def autoencoder(self) -> Any:
        """The video autoencoder, in float32."""
        import diffusers

        kind = diffusers.AutoencoderKLLTX2Video if self.world_model else diffusers.AutoencoderKLWan
        return _load(kind, self._part("vae"), torch.float32).eval().requires_grad_(False)

    def image_parts(self) -> dict[str, Any]:
        """CLIP and its preprocessing, where the model has them."""
        if not self.image_encoder:
            return {"image_encoder": None, "image_processor": None}
        from transformers import CLIPImageProcessor, CLIPVisionModel

        encoder = _load(CLIPVisionModel, self._part("image_encoder"), torch.float32)
        processor = _load(CLIPImageProcessor, self._part("image_processor"))
        return {"image_encoder": encoder.eval().requires_grad_(False), "image_processor": processor}

    def prompts(self) -> PromptEncoder:
        """Tokenizer and text encoder; fresh ones for a model trained from scratch."""
        if self.fresh:
            from ucpe.synthesis.worlds import vocabulary

            tokenizer = desk_parts.make_tokenizer(tuple(vocabulary()))
            return PromptEncoder(tokenizer, desk_parts.make_text_encoder(len(tokenizer)), self.recipe.text_tokens)
        from transformers import AutoModelForCausalLM, AutoTokenizer, UMT5EncoderModel

        kind = AutoModelForCausalLM if self.world_model else UMT5EncoderModel
        encoder = _load(kind, self._part("text_encoder"), DTYPES[self.recipe.precision])
        tokenizer = _load(AutoTokenizer, self._part("tokenizer"))
        prompts = WorldModelPromptEncoder if self.world_model else PromptEncoder
        return prompts(tokenizer, encoder.eval().requires_grad_(False), self.recipe.text_tokens)

    def denoiser(self) -> Denoiser:
        """The module to train, with a fresh adapter and gradients where the recipe wants them."""
        recipe = self.recipe
        torch.manual_seed(recipe.seed)
        prompts = None if recipe.cache_text else self.prompts()
        if self.fresh:
            transformer: Any = desk_parts.make_transformer(self.latent_channels)
        else:
            transformer = _load(
                transformer_class(self.transformer_config), self._part("transformer"), DTYPES[recipe.precision]
            )
        adapter = None
        if recipe.train_base and recipe.adapter != "none" and self.folder is not None:
            trained = self.folder / ADAPTER_FOLDER
            adapter = load_adapter(trained) if trained.is_dir() else None
        return build_denoiser(recipe, transformer, prompts, self.expand_timesteps, adapter)

    def _part(self, name: str) -> Path:
        if name == "vae" and self.recipe.autoencoder is not None:
            path = Path(self.recipe.autoencoder)
            if not (path / "config.json").is_file():
                raise ValueError(f"no autoencoder in {path}: expected its config.json and weights there")
            return path
        assert self.folder is not None
        path = self.folder / (self.recipe.expert or name if name == "transformer" else name)
        if not path.is_dir():
            raise OSError(f"{self.folder} has no {name}: it is no whole pipeline")
        return path


def build_denoiser(
    recipe: Recipe,
    transformer: nn.Module,
    prompts: PromptEncoder | None = None,
    expand_timesteps: bool = False,
    adapter: Adapter | None = None,
) -> Denoiser:
    """A transformer with an adapter, by default a fresh one, and gradients where the recipe wants them."""
    if adapter is None and recipe.adapter != "none":
        adapter = ADAPTERS[recipe.adapter].for_transformer(transformer, **recipe.adapter_options())
    world_model = type(transformer).__name__ == "SanaWMTransformer3DModel"
    kind = WorldModelDenoiser if world_model else Denoiser
    denoiser = kind(transformer, adapter, prompts, expand_timesteps or world_model, recipe.objective.train_timesteps)
    denoiser.set_trainable(recipe.train_base)
    if recipe.gradient_checkpointing:
        denoiser.transformer.enable_gradient_checkpointing()
    _check_first_frame(recipe, denoiser)
    return denoiser


def transformer_class(config: dict[str, Any]) -> Any:
    """The diffusers class of a transformer's config: Wan's, or SANA-WM's."""
    import diffusers

    name = config.get("_class_name", "WanTransformer3DModel")
    if name not in ("WanTransformer3DModel", "SanaWMTransformer3DModel") or not hasattr(diffusers, name):
        raise ValueError(f"training knows Wan and SANA-WM (diffusers 0.42), not {name}")
    return getattr(diffusers, name)


def sized_transformer(recipe: Recipe, **changes: Any) -> Any:
    """The recipe's transformer from its config alone, with some arguments changed; weights are not loaded."""
    known = {**TRANSFORMERS, DESK: desk_parts.transformer_config()}
    config = known.get(recipe.model)
    if config is None:
        config = json.loads((find_folder(recipe.model) / "transformer" / "config.json").read_text())
    arguments = {name: value for name, value in config.items() if not name.startswith("_")}
    return transformer_class(config)(**{**arguments, **changes})


def find_folder(model: str) -> Path:
    """Local folder of a pipeline: the folder itself, the bundled one, or what the hub (or its cache) has of an id."""
    if model == DESK:
        if not (desk.WEIGHTS / "model_index.json").is_file():
            raise OSError(f"the {model} model's weights are not part of this installation: train some with desk-model")
        return desk.WEIGHTS
    path = Path(model)
    if path.is_dir():
        if not (path / "model_index.json").is_file():
            raise OSError(f"{path} is no pipeline folder of diffusers: it has no model_index.json")
        return path
    return hub_folder(model, PIPELINE_FILES)


def _load(kind: Any, folder: Path, dtype: torch.dtype | None = None) -> Any:
    options = {} if dtype is None else {"torch_dtype" if "diffusers" in kind.__module__ else "dtype": dtype}
    try:
        return kind.from_pretrained(folder, **options)
    except (OSError, ValueError) as error:
        raise OSError(f"cannot load {kind.__name__} from {folder}: {str(error).strip().splitlines()[0]}") from None


def _check_first_frame(recipe: Recipe, denoiser: Denoiser) -> None:
    if denoiser.concatenates_image and recipe.first_frame != 1:
        raise ValueError(f"{recipe.model} always takes a first frame: set --first-frame 1, got {recipe.first_frame}")
    if recipe.first_frame and not (denoiser.concatenates_image or denoiser.expand_timesteps):
        raise ValueError(f"{recipe.model} makes video from text alone: set --first-frame 0, got {recipe.first_frame}")
