"""README's moving picture: what the desk model generates, above the view that the camera was told to have.

Upper row: generated videos, enlarged three times and otherwise untouched. Lower row: the commanded camera, drawn from
its rays: lines of longitude and latitude every 15 degrees, the horizon in yellow.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

import ucpe
from ucpe.generation.loading import load_quietly
from ucpe.trajectories import Trajectory

PROMPT = "a red tower on grass, hills on the horizon, under a clear sky"
ZOOM, LABEL, GAP = 3, 18, 4
SKY, GROUND, LINE, HORIZON = (
    np.array(color, float) for color in ((44, 62, 92), (52, 58, 48), (150,) * 3, (255, 212, 0))
)


def shots(frames: int, fps: float) -> dict[str, Trajectory]:
    """Cameras by the words above them."""
    shot = {"frames": frames, "fps": fps}
    return {
        "pinhole 100°, pan left": Trajectory.move("pan-left", ucpe.Pinhole(xfov=100), degrees=50, **shot),
        "fisheye 170°, pan right, roll 15°": Trajectory.move(
            "pan-right", ucpe.UCM(xfov=170, xi=1.7), degrees=50, roll=15, **shot
        ),
        "zoom from 170° to 100°": Trajectory.static(
            ucpe.UCM(xfov=torch.linspace(170, 100, frames), xi=torch.linspace(1.7, 0.2, frames)), pitch=8, **shot
        ),
    }


def commanded(camera: Trajectory, height: int, width: int) -> np.ndarray:
    """Frames (N, height, width, 3) uint8 of a sky and a ground with lines every 15 degrees, as the camera sees them."""
    rays = camera.lens_per_frame().rays(height, width, dtype=torch.float64)
    world = torch.einsum("nij,nhwj->nhwi", camera.c2w[:, :3, :3].double(), rays.directions).numpy()
    latitude = np.degrees(np.arcsin(-world[..., 1].clip(-1, 1)))
    longitude = np.degrees(np.arctan2(world[..., 0], world[..., 2]))
    picture = np.where((latitude > 0)[..., None], SKY, GROUND)
    for angle, near in ((latitude, 0.5), (longitude, 0.5 / np.cos(np.radians(latitude.clip(-88, 88))))):
        picture[np.abs((angle + 7.5) % 15 - 7.5) < near] = LINE
    picture[np.abs(latitude) < 1] = HORIZON
    return (picture * rays.valid.numpy()[..., None]).astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, nargs="?", default=Path("out/moving_picture.webp"))
    output = parser.parse_args().output
    load_quietly()
    pipe = ucpe.CameraPipeline.from_pretrained()
    height, width = ZOOM * pipe.defaults.height, ZOOM * pipe.defaults.width
    columns = []
    for words, camera in shots(pipe.defaults.frames, pipe.defaults.fps).items():
        video = pipe(PROMPT, camera, seed=2).videos[0].frames
        large = [
            np.asarray(Image.fromarray(frame).resize((width, height), Image.Resampling.BICUBIC)) for frame in video
        ]
        columns.append((words, np.stack(large), commanded(camera, height, width)))
    frames = []
    for index in range(pipe.defaults.frames):
        sheet = Image.new("RGB", (len(columns) * (width + GAP) - GAP, LABEL + 2 * height + GAP), "white")
        for column, (words, generated, told) in enumerate(columns):
            left = column * (width + GAP)
            ImageDraw.Draw(sheet).text((left + 2, 3), words, fill="black", font_size=13)
            sheet.paste(Image.fromarray(generated[index]), (left, LABEL))
            sheet.paste(Image.fromarray(told[index]), (left, LABEL + height + GAP))
        frames.append(sheet)
    output.parent.mkdir(parents=True, exist_ok=True)
    there_and_back = [*frames, *frames[-2:0:-1]]
    duration = round(1000 / pipe.defaults.fps)
    there_and_back[0].save(
        output, save_all=True, append_images=there_and_back[1:], duration=duration, loop=0, quality=60
    )
    print(output)


if __name__ == "__main__":
    main()
