"""The studio's server: pages, pictures, and who may see them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import Response
from fastapi.responses import RedirectResponse
from nicegui import app, ui

from ucpe.studio.guard import LOCAL_NAMES, Guard
from ucpe.studio.page import ABOVE_HEIGHT, ABOVE_WIDTH, Page
from ucpe.studio.shot import Shot
from ucpe.studio.store import Store
from ucpe.studio.window import UPLOAD, Window


class Studio:
    """Everything that the windows share: the folder, the model, the pages that are open."""

    def __init__(self, folder: Path, model: str | None = None, adapter: str | None = None):
        self.store = Store(folder)
        self.model, self.adapter = model, adapter
        self.pages: dict[str, Page] = {}
        self.panels: dict[str, Callable[[Page], Any]] = {}
        self.wide_panels: list[Callable[[Page], Any]] = []

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

        @ui.page("/shot/{id}", title="ucpe studio")
        async def shot(id: str) -> None:
            try:
                document = self.store.open(id)
            except ValueError as error:
                ui.label(str(error)).props('role="alert"')
                ui.link("Make a new shot", "/new")
                return
            await ui.context.client.connected()
            page = Page(self, Window(self.store, document))
            self.pages[page.token] = page

        @app.get("/studio/picture/{token}/{version}")
        def picture(token: str, version: int, fast: int = 1) -> Response:
            return self._picture(token, lambda page: page.window.picture(bool(fast)), bool(fast))

        @app.get("/studio/outside/{token}/{version}")
        def outside(token: str, version: int) -> Response:
            return self._picture(token, lambda page: page.window.above(ABOVE_HEIGHT, ABOVE_WIDTH, True), True)

    def _picture(self, token: str, make: Callable[[Page], bytes], fast: bool) -> Response:
        page = self.pages.get(token)
        if page is None:
            return Response("no such window\n", 404)
        try:
            content = make(page)
        except (ValueError, OSError) as error:
            return Response(f"{error}\n", 422)
        return Response(
            content, media_type="image/jpeg" if fast else "image/png", headers={"cache-control": "no-store"}
        )


def serve(studio: Studio, host: str = "127.0.0.1", port: int = 8765, open_browser: bool = True) -> None:
    """Answer until stopped; beyond this machine only with a token, which is printed with the address."""
    local = host in LOCAL_NAMES
    token = None if local else secrets.token_urlsafe(18)
    studio.add_routes()
    app.add_middleware(Guard, hosts=LOCAL_NAMES if local else (), token=token)
    address = f"http://{host if local else 'ADDRESS'}:{port}/" + ("" if local else f"?token={token}")
    app.on_startup(lambda: print(f"ucpe studio: {address}  (shots and results in {studio.store.folder})", flush=True))
    ui.run(
        host=host, port=port, title="ucpe studio", reload=False, show=open_browser and local, dark=None,
        show_welcome_message=False, favicon="🎥", reconnect_timeout=10, binding_refresh_interval=None,
    )  # fmt: skip
