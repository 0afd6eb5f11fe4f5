"""A rehearsal at true size: Wan2.1-T2V-1.3B with UMT5-XXL and its autoencoder, with random weights, on this machine.

It writes the three networks from their published configurations in the hub's folder layout (sharded safetensors, bf16),
runs `ucpe generate` on them from the command line with an adapter in the released layout, then training batches, and
prints seconds and peak memory of every part beside what `ucpe train --dry-run` estimates. About 16 GB of memory and of
disk, half an hour on two cores:

    python benchmarks/bench_full_size.py rehearsal/

A part that has its line in rehearsal/parts.jsonl is not run again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from safetensors.torch import save_file

from ucpe.adapters import CameraAdapter
from ucpe.adapters.released import RELEASED_GEOMETRY
from ucpe.adapters.sizes import preset_transformer
from ucpe.desk.model import make_tokenizer

SHARD = 2 << 30
PROMPT = "a red tower on grass, mountains on the horizon, under a clear sky"
SIZE = {"frames": 17, "height": 240, "width": 416}
SMALL_SIZE = {"frames": 5, "height": 128, "width": 224}
"""For CameraCtrl, which trains all weights: their gradients leave no memory for more."""
UMT5_XXL = {
    "vocab_size": 256384,
    "d_model": 4096,
    "d_kv": 64,
    "d_ff": 10240,
    "num_layers": 24,
    "num_heads": 64,
    "feed_forward_proj": "gated-gelu",
    "dropout_rate": 0.0,
    "pad_token_id": 0,
    "eos_token_id": 1,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", nargs="*", help="names of the parts to run; all by default")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "wan" / "model_index.json").is_file():
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:  # a child's peak memory counts from its parent's
            apart.submit(build, folder).result()
    if not (folder / "clips" / "metadata.parquet").is_file():
        ucpe(["synthesize", "worlds:outdoor", "-o", folder / "clips", "--clips", "2", *size_options()])
    log = folder / "parts.jsonl"
    rows = {row["part"]: row for row in map(json.loads, log.read_text().splitlines())} if log.is_file() else {}
    for name, command in parts(folder).items():
        if name not in rows and (not arguments.parts or name in arguments.parts):
            rows[name] = {"part": name, **measured(command)}
            with log.open("a") as file:
                file.write(json.dumps(rows[name]) + "\n")
    print_table(rows)


def parts(folder):
    """Command lines by name."""
    generate = ["generate", PROMPT, "--model", folder / "wan", "--adapter", folder / "released.bin", "--dtype", "bf16"]
    generate += ["--lens", "fisheye", "--move", "pan-left", "--steps", "2", *size_options(), "-o", folder / "tower.mp4"]
    found = {"generate, 2 steps": generate}
    for name, size in (("ucpe", SIZE), ("recammaster", SIZE), ("cameractrl", SMALL_SIZE)):
        options = ["--model", folder / "wan", "--text-tokens", "64", *size_options(size), "--batch", "1"]
        options += ["-o", folder / "run" / name]
        found[f"train {name}, estimate"] = ["train", name, *options, "--dry-run"]
        found[f"train {name}, a batch"] = ["train", name, *options, "--dry-run", "--data", folder / "clips"]
    found["train ucpe-i2v (14B), estimate on meta"] = ["train", "ucpe-i2v", "--dry-run"]
    return found


def measured(command):
    """Seconds and peak memory of a command of ours, and the last line that it printed."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "ucpe", *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    print(printed, flush=True)
    return {
        "seconds": round(time.monotonic() - began, 1),
        "peak_gb": round(usage.ru_maxrss / 1e6, 2),
        "exit": process.returncode,
        "printed": printed.strip().splitlines()[-14:],
    }


def print_table(rows):
    print(f"{'part':<42}{'seconds':>9}{'peak GB':>9}  estimate, or what it said")
    for name, row in rows.items():
        said = [line for line in row["printed"] if line.startswith(("memory per process", "first batch"))]
        said = [" ".join(line.split()) for line in said] or row["printed"][-1:]
        print(f"{name:<42}{row['seconds']:>9}{row['peak_gb']:>9}  {'; '.join(said)} (exit {row['exit']})")


def build(folder):
    """Write the pipeline folder and an adapter in the released layout."""
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler
    from transformers import UMT5Config, UMT5EncoderModel

    wan = folder / "wan"
    shutil.rmtree(wan, ignore_errors=True)
    with torch.device("meta"):
        encoder = UMT5EncoderModel(UMT5Config(**UMT5_XXL))
        autoencoder = AutoencoderKLWan()
    encoder.config.architectures = ["UMT5EncoderModel"]
    transformer = preset_transformer("wan2.1-1.3b")
    torch.manual_seed(0)
    write_random(encoder, wan / "text_encoder", "model", torch.bfloat16)
    write_random(transformer, wan / "transformer", "diffusion_pytorch_model", torch.bfloat16)
    write_random(autoencoder, wan / "vae", "diffusion_pytorch_model", torch.float32)
    FlowMatchEulerDiscreteScheduler(shift=3.0).save_pretrained(wan / "scheduler")
    make_tokenizer(tuple(PROMPT.replace(",", "").split())).save_pretrained(wan / "tokenizer")
    adapter = CameraAdapter.for_transformer(transformer, **RELEASED_GEOMETRY)
    for parameter in adapter.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    adapter.export_released(folder / "released.bin")
    index = {
        "_class_name": "WanPipeline",
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "UMT5EncoderModel"],
        "tokenizer": ["transformers", "PreTrainedTokenizerFast"],
        "transformer": ["diffusers", "WanTransformer3DModel"],
        "vae": ["diffusers", "AutoencoderKLWan"],
    }
    (wan / "model_index.json").write_text(json.dumps(index, indent=2))


def write_random(model, folder, stem, dtype):
    """Random weights for a model on the meta device, shard by shard, so that no whole network is in memory."""
    weights = {
        name: value for name, value in model.state_dict().items() if name != "encoder.embed_tokens.weight"
    }  # tied
    shards, size = [[]], 0
    for name, value in weights.items():
        size += value.numel() * dtype.itemsize
        if size > SHARD and shards[-1]:
            shards.append([])
            size = value.numel() * dtype.itemsize
        shards[-1].append((name, value))
    folder.mkdir(parents=True)
    places = {}
    for number, shard in enumerate(shards):
        file = f"{stem}-{number + 1:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else f"{stem}.safetensors"
        tensors = {name: random_weight(name, value.shape, dtype) for name, value in shard}
        save_file(tensors, folder / file, {"format": "pt"})
        places.update(dict.fromkeys(tensors, file))
    if len(shards) > 1:
        total = sum(value.numel() * dtype.itemsize for value in weights.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / f"{stem}.safetensors.index.json").write_text(json.dumps(index))
    save_config = getattr(model, "save_config", None)
    save_config(folder) if save_config else model.config.save_pretrained(folder)
    print(f"{folder.name}: {sum(value.numel() for value in weights.values()):,} weights, {len(shards)} shard(s)")


def random_weight(name, shape, dtype):
    if "norm" in name and name.endswith(("weight", "gamma")):
        return torch.ones(shape, dtype=dtype)
    return torch.zeros(shape, dtype=dtype) if name.endswith("bias") else torch.randn(shape, dtype=dtype) * 0.02


def size_options(size=SIZE):
    return [f"--{name}={value}" for name, value in size.items()]


def ucpe(command):
    subprocess.run([sys.executable, "-m", "ucpe", *map(str, command)], check=True)


if __name__ == "__main__":
    main()
