"""A cluster by its address: ray://HOST:PORT gives the same bytes as this machine."""

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from work_stages import Squares, items

from ucpe.work import cluster, run

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
SCRIPT = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from work_stages import main; main()"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def environment() -> dict[str, str]:
    """Variables for a node and for its clients: no other cluster, and no token that another test may have left."""
    return {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {"RAY_AUTH_MODE": "disabled"}


def takes_clients(port: int) -> bool:
    """Whether something listens at a port of this machine, which Ray's server for clients does seconds after Ray."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture
def address(tmp_path_factory):
    port, client = free_ports(2)
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}"]
    command += ["--node-ip-address=127.0.0.1", f"--ray-client-server-port={client}", "--num-cpus=2"]
    command += ["--include-dashboard=false", "--object-store-memory=80000000", "--disable-usage-stats"]
    log = tmp_path_factory.mktemp("node") / "log"
    with log.open("w") as file:
        node = subprocess.Popen(command, stdout=file, stderr=file, env=environment())
    patience = time.monotonic() + 900
    try:
        while "Ray runtime started" not in log.read_text() or not takes_clients(client):
            assert time.monotonic() < patience, log.read_text()
            if node.poll() is not None:  # Ray gives a node 30 seconds to start, which a busy machine may not have
                with log.open("w") as file:
                    node = subprocess.Popen(command, stdout=file, stderr=file, env=environment())
            time.sleep(0.1)
        yield f"ray://127.0.0.1:{client}"
    finally:
        node.terminate()
        node.wait(600)


@pytest.mark.parametrize("refusals", [2, 99])
def test_a_cluster_that_still_starts_is_asked_again(monkeypatch, refusals):
    asked = []

    def init(**options):
        asked.append(options["address"])
        if len(asked) <= refusals:
            raise ConnectionAbortedError("Initialization failure from server:\nit starts")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: len(asked) > refusals)
    monkeypatch.setattr(cluster, "PAUSE", 0)
    if refusals < cluster.CONNECTIONS:
        assert cluster.connect("ray://there:1") is ray and asked == ["ray://there:1"] * 3
    else:
        with pytest.raises(OSError, match=r"takes clients at ray://there:1 \(Initialization .* it starts\)"):
            cluster.connect("ray://there:1")
        assert len(asked) == cluster.CONNECTIONS


def test_a_node_that_does_not_start_is_one_line(monkeypatch):
    def init(**options):
        raise Exception("The current node timed out\nduring startup.")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(OSError, match=r"Ray did not start on this machine: The current node timed out during startup"):
        cluster.connect("ray://there:1")


def test_a_cluster_that_was_killed_is_not_waited_for(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(ray, "init", lambda **options: asked.append(options["address"]))
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(asked))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "ray").mkdir()

    def joined():
        asked.clear()
        cluster.connect("ray")
        return asked[0]

    assert joined() == "local"
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    with socket.create_server(("127.0.0.1", 0)) as alive:
        living = f"127.0.0.1:{alive.getsockname()[1]}"
        for address, answer in ((dead, "local"), (living, None)):
            (tmp_path / "ray" / "ray_current_cluster").write_text(address)
            assert joined() == answer
        (tmp_path / "ray" / "ray_current_cluster").write_text(dead)
        monkeypatch.setenv("RAY_ADDRESS", living)
        assert joined() is None
    monkeypatch.setenv("RAY_ADDRESS", dead)
    with pytest.raises(OSError, match=f"no Ray cluster answers at {dead} .RAY_ADDRESS."):
        joined()


def test_a_cluster_elsewhere_gives_the_same_bytes(address, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    list(run(Squares(here), items(*range(6))))
    subprocess.run([sys.executable, "-c", SCRIPT, str(there), "6", "0", "2", address], check=True, env=environment())
    files = [{path.name: path.read_bytes() for path in folder.glob("*/*")} for folder in (here, there)]
    assert files[0] == files[1] and len(files[0]) == 12
