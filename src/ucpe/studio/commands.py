"""The command line and the Python lines that make a shot without the studio."""

from __future__ import annotations

import shlex
from pathlib import Path

from ucpe.studio.shot import Shot


def shell_lines(
    shot: Shot, path: Path, scene: str, image: str | None = None, model: str | None = None, adapter: str | None = None
) -> str:
    """Commands that film the shot's scene and generate its video; `path` holds its camera."""
    camera = ["--camera", str(path), "--frames", str(shot.frames), "--fps", f"{shot.fps:g}"]
    size = ["--height", str(shot.height), "--width", str(shot.width)]
    generate = ["ucpe", "generate", shot.prompt, *camera, "--seed", str(shot.seed)]
    for name, value in _settings(shot, image, model, adapter).items():
        generate += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    render = ["ucpe", "render", scene, *camera, *size, "--output", "commanded.mp4"]
    return "\n".join(shlex.join(line) for line in (render, generate))


def python_lines(
    shot: Shot, path: Path, scene: str, image: str | None = None, model: str | None = None, adapter: str | None = None
) -> str:
    """The same in Python."""
    loaded = ", ".join(([repr(model)] if model else []) + ([f"adapter={adapter!r}"] if adapter else []))
    names = {"negative": "negative_prompt", "steps": "num_inference_steps", "guidance": "guidance_scale"}
    options = [f"{names.get(name, name)}={value!r}" for name, value in _settings(shot, None, None, None).items()]
    if image:
        options.append(f"image=Image.open({image!r})")
    call = ", ".join([repr(shot.prompt), "camera=camera", f"seed={shot.seed}", *options])
    lines = ["import ucpe", "from ucpe.video import write_video", *(["from PIL import Image"] if image else []), ""]
    lines += [f"camera = ucpe.Trajectory.load({str(path)!r})", f"pipe = ucpe.CameraPipeline.from_pretrained({loaded})"]
    lines += [f"video = pipe({call}).videos[0]", 'write_video("out.mp4", video.frames, camera.fps)']
    return "\n".join(lines)


def _settings(shot: Shot, image: str | None, model: str | None, adapter: str | None) -> dict[str, str | int | float]:
    values = {
        "model": model, "adapter": adapter, "negative": shot.negative or None, "steps": shot.steps,
        "guidance": shot.guidance, "height": shot.video_height, "width": shot.video_width, "image": image,
    }  # fmt: skip
    return {name: value for name, value in values.items() if value is not None}
