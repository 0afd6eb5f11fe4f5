"""The desk model: Wan's real classes at laptop size, its parts and where its weights live."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ucpe.generation.defaults import Limits

if TYPE_CHECKING:
    from diffusers import WanTransformer3DModel
    from transformers import PreTrainedTokenizerFast, UMT5EncoderModel

WEIGHTS = Path(__file__).parent / "desk_weights"
"""The bundled pipeline folder with its adapter."""

BASE_WEIGHTS = Path(__file__).parent / "desk_base_weights"
"""The bundled pipeline folder of the desk base, which never saw a camera; it shares the desk model's autoencoder."""

TEXT_TOKENS = 40
"""Prompt length in tokens; captions of worlds fit."""

LIMITS = Limits(pitch=30.0, roll=25.0, turn=60.0, travel=1.2, min_xfov=90.0, max_xfov=200.0)
"""Cameras of the clips that it is trained on (`ucpe.synthesis.desk_clips.CameraRanges`)."""


def part_folder(pipeline: Path, name: str) -> Path:
    """Folder of a part of a pipeline."""
    return (WEIGHTS if name == "vae" and pipeline == BASE_WEIGHTS else pipeline) / name


def transformer_config() -> dict[str, Any]:
    """Constructor arguments of the desk `WanTransformer3DModel`."""
    return {
        "patch_size": (1, 2, 2),
        "num_attention_heads": 6,
        "attention_head_dim": 32,
        "in_channels": 16,
        "out_channels": 16,
        "text_dim": 96,
        "freq_dim": 128,
        "ffn_dim": 768,
        "num_layers": 6,
        "rope_max_seq_len": 128,
    }


def make_transformer() -> WanTransformer3DModel:
    """A fresh desk transformer."""
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(**transformer_config())


def make_tokenizer(words: tuple[str, ...]) -> PreTrainedTokenizerFast:
    """One token per word of a closed vocabulary; other words become <unk>."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "</s>", "<unk>"]
    vocabulary = {word: index for index, word in enumerate([*special, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(behavior="removed")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=TEXT_TOKENS
    )


def make_text_encoder(vocabulary_size: int) -> UMT5EncoderModel:
    """A fresh two-layer text encoder."""
    from transformers import UMT5Config, UMT5EncoderModel

    config = UMT5Config(
        vocab_size=vocabulary_size,
        d_model=transformer_config()["text_dim"],
        d_kv=24,
        d_ff=256,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        pad_token_id=0,
        eos_token_id=1,
    )
    return UMT5EncoderModel(config)
