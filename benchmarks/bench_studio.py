"""Pictures a second that the studio's page shows in a real browser while the camera is dragged, at 480 x 270."""

import argparse
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from playwright.sync_api import sync_playwright

QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
COUNT = "Number(document.querySelector('.finder').dataset.pictures)"


def measure(address: str, seconds: float) -> float:
    """Drag the picture in circles and count those shown."""
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path="/usr/bin/chromium", args=list(QUIET))
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.goto(f"{address}/new")
        page.wait_for_selector(".finder[data-shown$='exact=1']", timeout=120000)
        box = page.locator(".finder").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        step, before, start = 0, page.evaluate(COUNT), time.monotonic()
        while time.monotonic() - start < seconds:
            step += 1
            page.mouse.move(x + 120 * ((step % 60) / 30 - 1), y + 20)
        shown = page.evaluate(COUNT) - before
        rate = shown / (time.monotonic() - start)
        page.mouse.up()
        browser.close()
    return rate


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
            print(f"{measure(address, options.seconds):.1f} pictures a second while dragging")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
