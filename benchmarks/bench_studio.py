"""Pictures a second that the studio's page shows in a real browser while the camera is dragged, at 480 x 270.

Beside it the CPU time that a picture costs the server and the browser, and the server's by part: unlike the rate, that
depends little on what else the machine does.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import sync_playwright

from ucpe.studio import drawing
from ucpe.studio.store import Store
from ucpe.studio.window import Window, encode

QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
HAND = 1 / 120
"""Least seconds between two moves of the pointer."""

COUNT = "Number(document.querySelector('.finder').dataset.pictures)"


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of a process and those that it started."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def measure(address: str, server: psutil.Process, seconds: float) -> tuple[float, float, float]:
    """Drag the picture to and fro: pictures shown a second, and CPU seconds a picture of the server and the browser."""
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path="/usr/bin/chromium", args=list(QUIET))
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(f"{address}/new")
        page.wait_for_selector(".finder[data-shown$='exact=1']", timeout=120000)
        chromium = next(one for one in psutil.Process().children(recursive=True) if "chrom" in one.name())
        box = page.locator(".finder").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        before, start = [page.evaluate(COUNT), cpu_seconds(server), cpu_seconds(chromium)], time.monotonic()
        step = 0
        while time.monotonic() - start < seconds:
            step += 1
            page.mouse.move(x + 120 * ((step % 60) / 30 - 1), y + 20)
            time.sleep(HAND)
        after, passed = [page.evaluate(COUNT), cpu_seconds(server), cpu_seconds(chromium)], time.monotonic() - start
        page.mouse.up()
        browser.close()
    shown, served, drawn = (end - begin for begin, end in zip(before, after))
    return shown / passed, served / shown, drawn / shown


def parts(folder: Path, repeats: int = 20) -> dict[str, float]:
    """CPU seconds of what the server does for a picture, and of what it does beside them twice a second."""
    store = Store(folder)
    window = Window(store, store.open(store.new()))
    scene, (lens, c2w), shot = window.scenes()[0], window.camera(), window.shot
    picture = scene.picture(lens, c2w, 0.0, 270, 480, fast=True)

    def look() -> None:
        window.look(window.drag(240, 135, 2, 0.1), "look")

    work: dict[str, Callable[[], Any]] = {
        "edit": look,
        "picture": lambda: scene.picture(lens, c2w, 0.0, 270, 480, fast=True),
        "lines over it": lambda: drawing.overlay_paths(lens, c2w, 270, 480, window.overlays),
        "JPEG": lambda: encode(picture, exact=False),
        "(path from outside)": lambda: drawing.path_svg(shot, 0, 0, window.orbit, 380, 560, None),
        "(graphs)": lambda: drawing.graphs_svg(shot, drawing.Curves.of(shot), 0, 0),
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
    parser.add_argument("--seconds", type=float, default=6.0)
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
            rate, served, drawn = measure(address, psutil.Process(server.pid), options.seconds)
            print(f"{rate:.1f} pictures a second while dragging (load average {os.getloadavg()[0]:.1f})")
            print(f"CPU ms a picture: server {1000 * served:.0f}, browser {1000 * drawn:.0f}")
        finally:
            server.terminate()
            server.wait()
        costs = ", ".join(f"{name} {1000 * cost:.1f}" for name, cost in parts(Path(folder)).items())
        print(f"CPU ms of the server by part: {costs}")


if __name__ == "__main__":
    main()
