"""Loading from and pushing to the hub, against a stand-in on this machine that speaks its protocol."""

import base64
import hashlib
import itertools
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

import pytest

from ucpe import desk

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Serves the files of `server.repositories`, takes commits, and keeps the authorization of every request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body=b"", status=200, **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        self.server.tokens.append(self.headers.get("Authorization"))
        parts = [unquote(part) for part in urlparse(self.path).path.strip("/").split("/")]
        if parts[:2] == ["api", "models"]:
            files = self.server.repositories.get("/".join(parts[2:4]))
            if files is None:
                return self.answer({"error": "no such repository"}, 404, X_Error_Code="RepoNotFound")
            if "tree" in parts:
                return self.answer([{"type": "file", "path": n, "size": len(b), "oid": "0"} for n, b in files.items()])
            found = {"id": "/".join(parts[2:4]), "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            return self.answer(found)
        body = self.server.repositories.get("/".join(parts[:2]), {}).get("/".join(parts[4:]))
        if body is None:
            return self.answer({"error": "no such file"}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        return self.answer(body, ETag=etag, X_Repo_Commit=COMMIT, X_Linked_Size=len(body))

    do_HEAD = do_GET

    def do_POST(self):
        self.server.tokens.append(self.headers.get("Authorization"))
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlparse(self.path).path.strip("/").split("/")
        if parts[:3] == ["api", "repos", "create"]:
            named = json.loads(sent)
            name = f"{named.get('organization') or 'me'}/{named['name']}"
            self.server.repositories.setdefault(name, {})
            return self.answer({"url": f"{self.server.address}/{name}", "id": name})
        if parts == ["api", "validate-yaml"]:
            return self.answer({"errors": [], "warnings": []})
        name = "/".join(parts[2:4])
        if "preupload" in parts:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(sent)["files"]
            ]
            return self.answer({"files": files})
        for line in map(json.loads, sent.splitlines()):
            if line["key"] == "file":
                content = base64.b64decode(line["value"]["content"])
                self.server.repositories[name][line["value"]["path"]] = content
        return self.answer(
            {"success": True, "commitOid": COMMIT, "commitUrl": f"{self.server.address}/{name}/commit/1"}
        )


@pytest.fixture(scope="module")
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.tokens = []
    folder = desk.WEIGHTS
    desk_files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    adapter = {n.split("/", 1)[1]: body for n, body in desk_files.items() if n.startswith("camera_adapter/")}
    server.repositories = {"lab/desk": desk_files, "lab/adapter": adapter}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


FUNCTIONS = """
import contextlib, sys, ucpe
from ucpe.cli import main

def load(*arguments, **options):
    pipe = ucpe.CameraPipeline.from_pretrained(*arguments, **options)
    print(pipe.defaults.frames, pipe.defaults.text_tokens, pipe.adapter.blocks[0].q_proj.weight.sum().item())
    return pipe

def refused(model):
    sys.argv = ["ucpe", "generate", "a tower", "--model", model, "-o", "a.mp4"]
    with contextlib.redirect_stderr(sys.stdout), contextlib.suppress(SystemExit):
        main()
"""


@pytest.mark.slow
def test_models_and_adapters_go_to_the_hub_and_come_back_also_without_network(hub, tmp_path):
    script = f"""{FUNCTIONS}
pipe = load("lab/desk", token="secret")
pipe.push_to_hub("me/again", token="secret")
pipe.adapter.save_pretrained({str(tmp_path / "adapter")!r}, push_to_hub=True, repo_id="me/adapter", token="secret")
load("me/again")
load("me/again", adapter="lab/adapter")
refused("lab/absent")
print("END", flush=True)
sys.stdin.readline()
load("me/again", local_files_only=True)
refused("lab/never-seen")
"""
    variables = {**os.environ, "HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    variables |= {"HF_HUB_DISABLE_XET": "1"}
    pipes = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", script], env=variables, text=True, **pipes) as process:
        online = "".join(itertools.takewhile(lambda line: line != "END\n", process.stdout))
        hub.shutdown()
        hub.server_close()
        cut_off, _ = process.communicate("\n", timeout=600)
    assert process.returncode == 0, online + cut_off
    *loaded, refusal = online.split("\n", 3)
    assert len(loaded) == 3 and len(set(loaded)) == 1
    assert "cannot get lab/absent from the hub" in refusal and "Traceback" not in refusal
    assert "Bearer secret" in hub.tokens
    assert {"generation.json", "camera_adapter/config.json", "model_index.json"} <= hub.repositories["me/again"].keys()
    assert "config.json" in hub.repositories["me/adapter"]
    again, refusal = cut_off.split("\n", 1)
    assert again == loaded[0] and "hf download lab/never-seen" in refusal and "Traceback" not in refusal
