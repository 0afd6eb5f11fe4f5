"""A kernel kept on disk is never older than the sources it was compiled from."""

import os
import subprocess
import sys


def test_an_edited_helper_is_compiled_anew(tmp_path):
    (tmp_path / "helper.py").write_text("from numba import njit\n@njit\ndef add(x):\n    return x + 1\n")
    (tmp_path / "outer.py").write_text(
        "from ucpe.compiled import kernel\nfrom helper import add\n"
        "@kernel(nogil=True)\ndef run(x):\n    return add(x)\n"
        "print(run(1), sum(run.stats.cache_hits.values()))\n"
    )

    def run():
        paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, tmp_path / "outer.py"], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert run() == ["2", "0"]
    assert run() == ["2", "1"]
    helper = tmp_path / "helper.py"
    before = helper.stat()
    helper.write_text(helper.read_text().replace("x + 1", "x + 5"))
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run() == ["6", "0"]
