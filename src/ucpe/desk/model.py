"""Parts of the desk model with fresh weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ucpe.desk import TEXT_TOKENS

if TYPE_CHECKING:
    from diffusers import WanTransformer3DModel
    from transformers import PreTrainedTokenizerFast, UMT5EncoderModel


def transformer_config(channels: int = 24) -> dict[str, Any]:
    """Constructor arguments of the desk `WanTransformer3DModel` for latents of some channels."""
    return {
        "patch_size": (1, 2, 2),
        "num_attention_heads": 6,
        "attention_head_dim": 32,
        "in_channels": channels,
        "out_channels": channels,
        "text_dim": 96,
        "freq_dim": 128,
        "ffn_dim": 768,
        "num_layers": 6,
        "rope_max_seq_len": 128,
    }


def autoencoder_config(
    base_dim: int = 17, decoder_base_dim: int = 32, dim_mult: tuple[int, ...] = (1, 2, 3), channels: int = 24
) -> dict[str, Any]:
    """Constructor arguments of the desk `AutoencoderKLWan`: 8 x 8 x 4 compression into some channels."""
    return {
        "base_dim": base_dim,
        "decoder_base_dim": decoder_base_dim,
        "z_dim": channels,
        "dim_mult": list(dim_mult),
        "num_res_blocks": 1,
        "temperal_downsample": [True, True],
        "patch_size": 2,
        "in_channels": 12,
        "out_channels": 12,
        "latents_mean": [0.0] * channels,
        "latents_std": [1.0] * channels,
    }


def make_transformer(channels: int = 24) -> WanTransformer3DModel:
    """A fresh desk transformer for latents of some channels."""
    from diffusers import WanTransformer3DModel

    return WanTransformer3DModel(**transformer_config(channels))


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
