"""Who may talk to the studio: this machine's own pages, or those who know the token."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

MAX_UPLOAD = 2 << 30
"""Bytes of one request; panoramic video is large."""

COOKIE = "ucpe_studio_token"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Guard:
    """ASGI middleware: checks the Host and Origin of every request, its token if there is one, and its size.

    A page elsewhere on the web can make a browser send requests to this machine, but it cannot choose their Origin; and
    a name that it points at this machine (DNS rebinding) shows in Host.
    """

    def __init__(self, app: Any, hosts: tuple[str, ...] = LOCAL_NAMES, token: str | None = None):
        self.app, self.hosts, self.token = app, hosts, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        reason = self.refusal(scope, headers)
        if reason:
            await _refuse(scope, receive, send, *reason)
            return
        if scope["type"] == "http" and self.token and self._token_in_query(scope):
            send = _with_cookie(send, self.token)
        await self.app(scope, _limited(receive), send)

    def refusal(self, scope: Any, headers: dict[str, str]) -> tuple[int, str] | None:
        """Status and reason if a request is not to be answered."""
        host = headers.get("host", "")
        if self.hosts and _name(host) not in self.hosts:
            return 403, f"the studio does not answer to the name {_name(host)!r}"
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return 403, "requests from other pages are refused"
        if self.token and not self._knows_token(scope, headers):
            return 401, "open the studio by the address with the token that it printed when it started"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_UPLOAD:
            return 413, f"files of more than {MAX_UPLOAD >> 20} MB are refused"
        return None

    def _token_in_query(self, scope: Any) -> bool:
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        return hmac.compare_digest(given.encode(), (self.token or "").encode())

    def _knows_token(self, scope: Any, headers: dict[str, str]) -> bool:
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        given = cookie.value if cookie else ""
        return hmac.compare_digest(given.encode(), (self.token or "").encode()) or self._token_in_query(scope)


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _limited(receive: Any) -> Any:
    """The same requests, ended where a body is larger than it may be (it need not have said so before)."""
    total = 0

    async def next_message() -> Any:
        nonlocal total
        message = await receive()
        if message["type"] == "http.request":
            total += len(message.get("body", b""))
            if total > MAX_UPLOAD:
                return {"type": "http.disconnect"}
        return message

    return next_message


def _with_cookie(send: Any, token: str) -> Any:
    cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict".encode()

    async def send_with_cookie(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], (b"set-cookie", cookie)]}
        await send(message)

    return send_with_cookie


async def _refuse(scope: Any, receive: Any, send: Any, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4403})
        return
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"ucpe studio: {reason}\n".encode()})
