"""Pictures a second that the studio's page shows in a real browser while the camera is dragged, at 480 x 270.

Beside the rate it prints how many of the machine's cores were busy with other things meanwhile, and the CPU time that a
picture costs the server, the browser and the hand that drags (a person's costs nothing).
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from playwright.async_api import async_playwright

from ucpe.studio import drawing
from ucpe.studio.store import Store
from ucpe.studio.window import Move, Window, encode

QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
HAND = 1 / 60
"""Least seconds between two moves of the pointer: a browser reports at most one a frame."""

COUNT = "Number(document.querySelector('.finder').dataset.pictures)"


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of a process and those that it started."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def busy_seconds() -> float:
    """CPU time that was not to be had: used by anyone on this machine, or by its host."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - getattr(times, "guest", 0) - getattr(times, "guest_nice", 0)


@dataclass
class Rate:
    """What one drag showed: pictures a second, cores that others used, and CPU seconds a picture by who used them."""

    pictures: float
    others: float
    server: float
    browser: float
    hand: float


async def measure(address: str, server: psutil.Process, seconds: float, rounds: int) -> list[Rate]:
    """Drag the picture to and fro for so many seconds, a number of times."""
    async with async_playwright() as engine:
        browser = await engine.chromium.launch(executable_path="/usr/bin/chromium", args=list(QUIET))
        page = await browser.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(600000)
        await page.goto(f"{address}/new")
        await page.wait_for_selector(".finder[data-shown$='exact=1']")
        own = psutil.Process()
        chromium = next(one for one in own.children(recursive=True) if "chrom" in one.name())
        box = await page.locator(".finder").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        pointer = await page.context.new_cdp_session(page)  # page.mouse takes three times the CPU time

        async def state() -> tuple[float, ...]:
            used = [cpu_seconds(one) for one in (server, chromium, own)]
            return time.monotonic(), await page.evaluate(COUNT), busy_seconds(), *used

        async def drag() -> Rate:
            await page.mouse.move(x, y)
            await page.mouse.down()
            before, moves = await state(), []
            while time.monotonic() - before[0] < seconds:
                place = {"x": x + 120 * ((len(moves) % 60) / 30 - 1), "y": y + 20, "button": "left", "buttons": 1}
                move = pointer.send("Input.dispatchMouseEvent", {"type": "mouseMoved", **place})
                moves.append(asyncio.ensure_future(move))  # a hand does not wait for the page
                await asyncio.sleep(HAND)
            passed, shown, busy, served, drawn, ours = (end - start for start, end in zip(before, await state()))
            await asyncio.gather(*moves)
            await page.mouse.up()
            others = (busy - served - ours) / passed
            return Rate(shown / passed, others, *(used / shown for used in (served, drawn, ours - drawn)))

        rates = [await drag() for _ in range(rounds)]
        await browser.close()
    return rates


def parts(folder: Path, repeats: int = 20) -> dict[str, float]:
    """CPU seconds of what the server does for a picture, and of what it does beside them twice a second."""
    store = Store(folder)
    window = Window(store, store.open(store.new()))
    scene, (lens, c2w), shot = window.scenes()[0], window.camera(), window.shot
    picture = scene.picture(lens, c2w, 0.0, 270, 480, fast=True)

    def look() -> None:
        window.look(window.drag(Move(240, 135, 2, 0.1)), "look")

    work: dict[str, Callable[[], Any]] = {
        "edit": look,
        "picture": lambda: scene.picture(lens, c2w, 0.0, 270, 480, fast=True),
        "lines over it": lambda: drawing.overlay_paths(lens, c2w, 270, 480, window.overlays),
        "JPEG": lambda: encode(picture, exact=False),
        "(path from outside)": lambda: drawing.path_svg(shot, (lens, c2w), 0, 0, window.orbit, None),
        "(graphs)": lambda: drawing.graphs_svg(shot, drawing.curves(shot), 0, 0),
    }
    found = {}
    for name, run in work.items():
        run()
        start = time.process_time()
        for _ in range(repeats):
            run()
        found[name] = (time.process_time() - start) / repeats
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=8791)
    options = parser.parse_args()
    if not Path("/usr/bin/chromium").exists():
        sys.exit("bench_studio: needs /usr/bin/chromium (Debian package chromium)")
    address = f"http://127.0.0.1:{options.port}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ucpe", "studio", folder, "--no-browser", "--port", str(options.port)]
        server = subprocess.Popen(command)
        try:
            while True:
                try:
                    urllib.request.urlopen(address, timeout=60).close()
                    break
                except OSError:
                    time.sleep(0.3)
            process = psutil.Process(server.pid)
            for rate in asyncio.run(measure(address, process, options.seconds, options.rounds)):
                used = ", ".join(f"{name} {1000 * getattr(rate, name):.0f}" for name in ("server", "browser", "hand"))
                print(
                    f"{rate.pictures:.1f} pictures a second while others used {rate.others:.2f} of the cores", end="; "
                )
                print(f"CPU ms a picture: {used}")
        finally:
            server.terminate()
            server.wait()
        costs = ", ".join(f"{name} {1000 * cost:.1f}" for name, cost in parts(Path(folder)).items())
        print(f"CPU ms of the server by part: {costs}")


if __name__ == "__main__":
    main()
