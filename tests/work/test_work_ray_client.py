"""A cluster by its address: ray://HOST:PORT gives the same bytes as this machine."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from work_stages import Squares, items

from ucpe.work import run

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow
SCRIPT = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from work_stages import main; main()"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture
def address(tmp_path_factory):
    host, (port, client) = ray.util.get_node_ip_address(), free_ports(2)
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--port={port}"]
    command += [f"--ray-client-server-port={client}", "--num-cpus=2", "--include-dashboard=false"]
    command += ["--object-store-memory=80000000", "--disable-usage-stats"]
    log = tmp_path_factory.mktemp("node") / "log"
    with log.open("w") as file:
        node = subprocess.Popen(command, stdout=file, stderr=file)
    address = f"ray://{host}:{client}"
    for _ in range(12):  # a client is refused while its node starts
        ready = subprocess.run([sys.executable, "-c", f"import ray; ray.init({address!r})"], capture_output=True)
        if not ready.returncode:
            break
        assert node.poll() is None, log.read_text()
        time.sleep(5)
    yield address
    node.terminate()
    node.wait(60)


def test_a_cluster_elsewhere_gives_the_same_bytes(address, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    list(run(Squares(here), items(*range(6))))
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    subprocess.run([sys.executable, "-c", SCRIPT, str(there), "6", "0", "2", address], check=True, env=environment)
    files = [{path.name: path.read_bytes() for path in folder.glob("*/*")} for folder in (here, there)]
    assert files[0] == files[1] and len(files[0]) == 12
