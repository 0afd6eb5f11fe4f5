"""A studio that runs, and a browser that looks at it."""

import base64
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import ucpe

CHROMIUM = Path("/usr/bin/chromium")
QUIET = [
    "--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
]  # fmt: skip
PATIENCE = 900
"""Seconds after which something that does not happen is a failure."""


def wait_until(check, what: str = "it"):
    """What `check` gives once it is true."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = check()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {PATIENCE} s")


EXACT = """(() => {
    const {pictures, shown} = document.querySelector('.finder').dataset;
    return shown?.endsWith('exact=1') ? pictures : null;
})()"""
"""The number of the picture that is shown through the lens, if it is an exact one."""


class RunningStudio:
    """`ucpe studio` as a process."""

    def __init__(self, folder: Path, *options: str):
        self.folder, self.options = folder, options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(ucpe.__file__).parents[1]), "HF_HUB_OFFLINE": "1"}
        environment.pop("PYTEST_CURRENT_TEST", None)  # by which NiceGUI would take it for a test of its own
        command = [sys.executable, "-m", "ucpe", "studio", str(self.folder), "--no-browser", "--port", str(self.port)]
        self.log = open(self.folder.with_suffix(".log"), "ab")  # noqa: SIM115
        self.process = subprocess.Popen([*command, *self.options], env=environment, stdout=self.log, stderr=self.log)
        try:
            wait_until(self.answers, "an answer of the studio")
        except BaseException:
            self.kill()
            raise

    def answers(self) -> bool:
        assert self.process.poll() is None, self.folder.with_suffix(".log").read_text()
        try:
            urllib.request.urlopen(f"{self.address}/studio/result/none", timeout=PATIENCE)
        except urllib.error.HTTPError as answer:
            return answer.code == 404
        except OSError:
            return False
        return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()


class StudioPage:
    """A page on a shot, and what to wait for in it."""

    def __init__(self, studio: RunningStudio, context, path: str = "/new", width: int = 1400, height: int = 1000):
        self.studio, self.context = studio, context
        self.tab = context.new_page()
        self.tab.set_viewport_size({"width": width, "height": height})
        self.tab.set_default_timeout(1000 * PATIENCE)
        self.errors: list[str] = []
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.open(path)

    def open(self, path: str) -> None:
        self.tab.goto(self.studio.address + path)
        self.wait_for_still()

    @property
    def id(self) -> str:
        return self.tab.url.rsplit("/", 1)[1]

    def shot(self, id: str | None = None) -> dict:
        """The shot of the page, or of an id, as it is on disk."""
        return json.loads((self.studio.folder / "shots" / f"{id or self.id}.json").read_text())

    def wait_for_shot(self, check, what: str = "the change of the shot") -> dict:
        """The shot on disk once it fulfils a condition."""
        return wait_until(lambda: (lambda shot: shot if check(shot) else None)(self.shot()), what)

    def wait_for_still(self) -> None:
        """Wait until the exact picture of the present state is shown."""
        self.tab.wait_for_selector(".finder[data-shown$='exact=1']", timeout=1000 * PATIENCE)

    def canvas(self) -> np.ndarray:
        """The pixels (H, W, 3) of the picture through the lens."""
        data = self.tab.evaluate("document.querySelector('.finder canvas').toDataURL('image/png')")
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(data.split(",")[1]))).convert("RGB"))

    def wait_for_picture(self, wanted: np.ndarray) -> None:
        """Wait until exactly these pixels are shown; each picture is looked at once."""
        looked_at = None

        def shown() -> bool:
            nonlocal looked_at
            number = self.tab.evaluate(EXACT)
            if number in (None, looked_at):
                return False
            looked_at, found = number, self.canvas()
            return found.shape == wanted.shape and bool((found == wanted).all())

        wait_until(shown, "that picture")

    def wait_for_number(self, label: str, wanted: float) -> None:
        """Wait until a field shows a number."""
        field = self.tab.get_by_label(label, exact=True).locator("visible=true")
        wait_until(lambda: abs(float(field.input_value() or "nan") - wanted) < 1e-3, f"{label} of {wanted}")

    def wait_for_slider(self, name: str, wanted: float) -> None:
        """Wait until a slider is at a number: what is on disk is not yet in the browser."""
        slider = self.tab.get_by_role("slider", name=name)
        wait_until(lambda: float(slider.get_attribute("aria-valuenow")) == wanted, f"the slider of {name} at {wanted}")

    def drag(self, surface: str, start: tuple[float, float], end: tuple[float, float], steps: int = 8) -> None:
        """Drag from one place of a surface to another, each a share of its width and height."""
        self.tab.locator(surface).scroll_into_view_if_needed()
        box = self.tab.locator(surface).bounding_box()
        places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
        self.tab.mouse.move(*places[0])
        self.tab.mouse.down()
        self.tab.mouse.move(*places[1], steps=steps)
        self.tab.mouse.up()

    def close(self) -> None:
        self.tab.close()
        assert not self.errors, self.errors


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    """A running studio."""
    pytest.importorskip("nicegui", reason="needs the page's library: pip install 'ucpe[studio]'")
    running = RunningStudio(tmp_path_factory.mktemp("studio") / "folder")
    yield running
    running.kill()


@pytest.fixture(scope="module")
def browser():
    """Chromium, whose pages share what they have loaded and compiled of the page's library."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright to steer a browser")
    if not CHROMIUM.exists():
        pytest.skip(f"needs {CHROMIUM} (Debian package chromium)")
    with playwright.sync_playwright() as engine:
        opened = engine.chromium.launch(executable_path=str(CHROMIUM), args=QUIET)
        yield opened.new_context(accept_downloads=True)
        opened.close()


@pytest.fixture
def open_page(studio, browser):
    """Opens pages, by default on a new shot."""
    opened = []

    def opens(*args, **options) -> StudioPage:
        opened.append(StudioPage(studio, browser, *args, **options))
        return opened[-1]

    yield opens
    for page in opened:
        page.close()


@pytest.fixture
def page(open_page):
    """A page on a new shot."""
    return open_page()


@pytest.fixture
def wait():
    """Waits until a check is true, and gives what it gave."""
    return wait_until
