"""Captions from a vision-language model behind an OpenAI-compatible endpoint, such as vLLM serves."""

from __future__ import annotations

import io
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import Unpack

from ucpe.files import fingerprint_of
from ucpe.work import Item, JsonParts, Quarantine, Stage, WorkArguments, folder_lock, run

SYSTEM_PROMPT = "You are a helpful video captioning assistant."
USER_PROMPT = "Please describe this video in detail."
"""The paper's prompt (supplement A.4)."""


class CaptionError(ValueError):
    """The endpoint could not caption a clip."""


@dataclass(frozen=True)
class Endpoint:
    """A model that answers chat requests over HTTP."""

    url: str
    """Base address, e.g. http://localhost:8000/v1"""
    model: str
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds the key, if the endpoint wants one."""
    timeout: float = 60.0
    """Seconds to wait for an answer."""
    retries: int = 4
    """Number of further attempts after a failure that may pass."""
    pause: float = 1.0
    """Seconds before the first retry; each pause is twice the one before."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"--url must begin with http:// or https://, got {self.url!r}")

    def ask(self, request: dict[str, Any], name: str) -> str:
        """The answer to a chat request (its JSON body), on one line; error messages begin with `name`."""
        body = json.dumps(request).encode()
        for attempt in range(self.retries + 1):
            try:
                return self._ask(body, name)
            except _Passing as problem:
                if attempt == self.retries:
                    raise CaptionError(
                        f"{name}: no answer from {self.url} after {attempt + 1} attempts ({problem})"
                    ) from None
                time.sleep(problem.wait if problem.wait is not None else self.pause * 2**attempt)
        raise AssertionError

    def _ask(self, body: bytes, name: str) -> str:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(self.key_variable):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{self.url.rstrip('/')}/chat/completions", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                answer = json.loads(response.read())
            text = answer["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as error:
            detail = error.read(300).decode(errors="replace").strip()
            if error.code in (408, 409, 429) or error.code >= 500:
                wait = error.headers.get("Retry-After", "")
                raise _Passing(f"HTTP {error.code} {detail}", float(wait) if wait.isdigit() else None) from None
            raise CaptionError(f"{name}: {self.url} refused: HTTP {error.code} {detail}") from None
        except (OSError, TimeoutError) as error:
            raise _Passing(str(error)) from None
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, IndexError, TypeError):
            raise _Passing("the answer is not a chat completion") from None
        if not isinstance(text, str) or not text.strip():
            raise _Passing("the answer is empty")
        return " ".join(text.split())


@dataclass(frozen=True)
class EndpointCaptioner(Endpoint):
    """Asks an endpoint for a caption of a video, showing it evenly spaced frames as images."""

    frames: int = 8
    height: int = 336
    """Height in pixels of the frames sent."""
    max_tokens: int = 512

    def caption(self, video: str | Path) -> str:
        """The caption of a video file."""
        return self.ask(self.request(video), str(video))

    def request(self, video: str | Path) -> dict[str, Any]:
        """The JSON body of the request for a video; nothing is sent."""
        images = [{"type": "image_url", "image_url": {"url": picture}} for picture in self._pictures(video)]
        return {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "messages": [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": [*images, {"type": "text", "text": USER_PROMPT}]},
            ],
        }

    def _pictures(self, video: str | Path) -> list[str]:
        from PIL import Image

        from ucpe.pages.drawings import data_uri
        from ucpe.video import probe_video, read_video

        info = probe_video(video)
        wanted = set(np.linspace(0, info.frames - 1, min(self.frames, info.frames)).round().astype(int).tolist())
        pictures = []
        for frame in read_video(video):
            if frame.index in wanted:
                image = Image.fromarray(frame.rgb)
                if info.height > self.height:
                    image = image.resize((round(info.width * self.height / info.height), self.height))
                buffer = io.BytesIO()
                image.save(buffer, "JPEG", quality=90)
                pictures.append(data_uri(buffer.getvalue()))
        return pictures


class _Passing(Exception):
    """A failure that may pass, with the seconds to wait if the endpoint says so."""

    def __init__(self, message: str, wait: float | None = None):
        super().__init__(message)
        self.wait = wait


@dataclass
class Captioning(Stage):
    """Asks for the caption of a clip, which is kept until the table is written."""

    captioner: EndpointCaptioner
    parts: JsonParts
    name = "captions"
    waits = True

    def process(self, video: Path) -> str:
        """The caption of a video."""
        return self.captioner.caption(video)


def caption_dataset(
    folder: str | Path,
    captioner: EndpointCaptioner,
    *,
    again: bool = False,
    **work: Unpack[WorkArguments],
) -> dict[str, str]:
    """Caption the clips that have none (all with `again`); return why clips failed, by their ids.

    Captions are kept as they arrive, so a run after an interruption asks only for the missing ones. Unless `workers` is
    given, four requests are under way at a time.
    """
    from ucpe.synthesis.dataset import read_metadata, write_table

    folder = Path(folder)
    state = folder / ".synthesis"
    parts = JsonParts(state / "captions")
    failures: dict[str, str] = {}
    with folder_lock(state, "lock"):
        table = read_metadata(folder)
        names, videos, captions = (table[name].to_pylist() for name in ("id", "file_name", "caption"))
        known = dict(zip(names, captions))
        asked = fingerprint_of(captioner.model, captioner.frames, captioner.height, captioner.max_tokens)
        todo = [Item(name, folder / video, asked) for name, video in zip(names, videos)]
        todo = [item for item in todo if again or not known[item.id]]
        if again:
            for item in todo:
                parts.file(item).unlink(missing_ok=True)
        work["workers"] = work.get("workers") or 4
        work["retry_failed"] = work.get("retry_failed") or again
        for done in run(Captioning(captioner, parts), todo, quarantine=Quarantine(parts.folder), **work):
            if done.reason:
                failures[done.item.id] = done.reason
            else:
                known[done.item.id] = done.part
        if len(failures) < len(todo):
            column = table.schema.get_field_index("caption")
            write_table(folder, table.set_column(column, "caption", [[known[name] for name in names]]))
            _keep_in_records(folder, {item.id: known[item.id] for item in todo if item.id not in failures})
    return failures


def _keep_in_records(folder: Path, captions: dict[str, str]) -> None:
    """Put captions into the records from which a later `ucpe synthesize` of more clips writes the table."""
    from ucpe.synthesis.clips import finished_row, write_record

    for name, caption in captions.items():
        if (row := finished_row(folder, name)) is not None:
            write_record(folder, name, {**row, "caption": caption})
