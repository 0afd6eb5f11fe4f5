"""The studio's server: pages, pictures, and who may see them."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fastapi import Response
from fastapi.responses import FileResponse, RedirectResponse
from nicegui import app, run, ui

from ucpe.generation.checks import ModelFacts
from ucpe.generation.loading import load_quietly
from ucpe.generation.options import Setup
from ucpe.generation.requests import Request
from ucpe.generation.setup import load_pipeline, resolved
from ucpe.lenses import Pinhole
from ucpe.studio.guard import LOCAL_NAMES, Guard
from ucpe.studio.jobs import RESULT, Job, Queue, measure_video
from ucpe.studio.page import Page
from ucpe.studio.preflight import model_facts
from ucpe.studio.shot import Shot
from ucpe.studio.store import IMAGES, Store
from ucpe.studio.window import UPLOAD, Move, Window
from ucpe.synthesis.scenes import open_scene

SLOWEST_PAGE = 120
"""Seconds after which a page that is not ready is an error; the first one compiles the renderer."""

RECONNECT = 60.0
"""Seconds that a page may be out of touch before it is loaded anew: a busy machine keeps both sides waiting."""

RESULT_FILE = re.compile(RESULT.pattern + r"(\.commanded)?\.(mp4|json)")


class Studio:
    """Everything that the windows share: the folder, the model, the pages that are open."""

    def __init__(self, folder: Path, model: str | None = None, adapter: str | None = None):
        self.model, self.adapter = model, adapter
        try:
            self.facts = model_facts(model, adapter)
        except (ValueError, OSError):  # the preflight says what is wrong, and everything but generating works
            self.facts = ModelFacts()
        self.store = Store(folder, self.first_shot)
        self.queue = Queue(self.store.results, self.load, measure_video)
        self.pages: dict[str, Page] = {}

    def first_shot(self) -> Shot:
        """A shot of the length that the model is at its best with."""
        return Shot(frames=self.facts.defaults.frames, fps=self.facts.defaults.fps)

    def load(self) -> Any:
        """The pipeline, on the best device of this machine."""
        load_quietly()
        return load_pipeline(self.model, self.adapter, resolved(Setup(), self.facts.defaults))

    def request_of(self, shot: Shot) -> Request:
        """What `ucpe generate` would be asked for."""
        image = self.image_file(shot)
        return Request(
            shot.prompt, shot.camera, self.model, self.adapter, None if image is None else Path(image),
            resolved(Setup(), self.facts.defaults), negative=shot.negative or None, guidance=shot.guidance,
            steps=shot.steps, seed=shot.seed, height=shot.video_height, width=shot.video_width,
        )  # fmt: skip

    def submit(self, shot: Shot) -> None:
        """Put a shot into the queue."""
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        self.queue.submit(Job(name, self.request_of(shot), shot, self.scene_file(shot)))

    def scene_file(self, shot: Shot) -> str:
        """The scene of a shot as `ucpe render` takes it."""
        return (
            str(self.store.uploads / shot.scene.removeprefix(UPLOAD)) if shot.scene.startswith(UPLOAD) else shot.scene
        )

    def image_file(self, shot: Shot) -> str | None:
        """The first frame of a shot as `ucpe generate` takes it."""
        return None if shot.image is None else str(self.store.uploads / shot.image)

    def add_routes(self) -> None:
        """Pages and pictures."""

        @ui.page("/", title="ucpe studio")
        def start() -> RedirectResponse:
            return RedirectResponse(f"/shot/{self.store.latest_unwatched()}")

        @ui.page("/new", title="ucpe studio")
        def new() -> RedirectResponse:
            return RedirectResponse(f"/shot/{self.store.new()}")

        @ui.page("/shot/{id}", title="ucpe studio", response_timeout=SLOWEST_PAGE)
        async def shot(id: str) -> None:
            try:
                document = self.store.open(id)
            except ValueError as error:
                ui.label(str(error)).props('role="alert"')
                ui.link("Make a new shot", "/new")
                return
            window = Window(self.store, document)
            await run.io_bound(window.warm_up)
            page = Page(self, window)
            self.pages[page.token] = page

        @app.get("/studio/picture/{token}")
        def picture(token: str, exact: bool = False) -> Response:
            return self._picture(token, lambda page: page.window.picture(exact))

        @app.post("/studio/picture/{token}")
        async def look(token: str, move: Move) -> Response:
            if token in self.pages:
                self.pages[token].look(move)
            return await asyncio.to_thread(self._picture, token, lambda page: page.window.picture(exact=False))

        @app.get("/studio/outside/{token}")
        def outside(token: str) -> Response:
            return self._picture(token, lambda page: (page.window.above(), []))

        @app.get("/studio/upload/{name}")
        def upload(name: str) -> Response:
            try:
                path = self.store.upload(name)
            except ValueError as error:
                return Response(f"{error}\n", 404)
            headers = {"x-content-type-options": "nosniff"}
            return FileResponse(path, headers=headers) if path.suffix in IMAGES else Response("not a picture\n", 404)

        @app.get("/studio/result/{name}")
        def result(name: str) -> Response:
            path = self.store.results / name
            if not RESULT_FILE.fullmatch(name) or not path.is_file():
                return Response("no such result\n", 404)
            return FileResponse(path)

    def _picture(self, token: str, make: Callable[[Page], tuple[bytes, list[str]]]) -> Response:
        """A picture and the lines over it in one answer, as `surface.js` takes them."""
        page = self.pages.get(token)
        if page is None:
            return Response("no such window\n", 404)
        page.asked = None
        try:
            picture, lines = make(page)
        except (ValueError, OSError) as error:
            return Response(f"{error}\n", 422)
        headers = {"cache-control": "no-store", "content-encoding": "identity", "picture-bytes": str(len(picture))}
        return Response(picture + json.dumps(lines).encode(), media_type="application/octet-stream", headers=headers)


def warm_up() -> None:
    """Compile the renderer, which the first picture would otherwise wait for (a minute, once after installing)."""
    scene, lens = open_scene("world:3"), Pinhole(xfov=90.0)
    for fast in (True, False):
        scene.picture(lens, torch.eye(4, dtype=torch.float64), 0.0, 16, 16, fast=fast)


def serve(studio: Studio, host: str = "127.0.0.1", port: int = 8765, open_browser: bool = True) -> None:
    """Answer until stopped; beyond this machine only with a token, which is printed with the address."""
    local = host in LOCAL_NAMES
    token = None if local else secrets.token_urlsafe(18)
    print("ucpe studio: starting (the first time after installing, this compiles for a minute)", flush=True)
    warm_up()
    studio.add_routes()
    app.add_middleware(Guard, hosts=LOCAL_NAMES if local else (), token=token)
    address = f"http://{host if local else 'ADDRESS'}:{port}/" + ("" if local else f"?token={token}")
    app.on_startup(lambda: print(f"ucpe studio: {address}  (shots and results in {studio.store.folder})", flush=True))
    ui.run(
        host=host, port=port, title="ucpe studio", reload=False, show=open_browser and local, dark=None,
        show_welcome_message=False, favicon="🎥", reconnect_timeout=RECONNECT, binding_refresh_interval=None,
        ws_per_message_deflate=False,
    )  # fmt: skip
