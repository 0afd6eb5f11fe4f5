"""`ucpe studio`: what it serves, and what it refuses before it does."""

import importlib.util
import socket

import pytest

from ucpe.cli.studio import main


def test_options_reach_the_server(tmp_path, monkeypatch):
    server = pytest.importorskip("ucpe.studio.server")
    served = []
    monkeypatch.setattr(server, "Studio", lambda folder, model, adapter: (folder, model, adapter))
    monkeypatch.setattr(server, "serve", lambda *arguments: served.append(arguments))
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use"):
            main(["shots", "--port", str(port), "--no-browser"])
    (tmp_path / "mine").mkdir()
    main(["shots", "--model", "m", "--adapter", "mine", "--port", str(port), "--no-browser"])
    assert served == [((tmp_path / "shots", "m", str(tmp_path / "mine")), "127.0.0.1", port, False)]


def test_what_is_missing_or_impossible(monkeypatch):
    with pytest.raises(ValueError, match="--port must be between 1 and 65535, got 0"):
        main(["--port", "0"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'ucpe\[studio\]'"):
        main([])
