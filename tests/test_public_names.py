"""`import ucpe` offers every public name, and loads nothing heavy until one is used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ucpe


@pytest.mark.parametrize("name", ucpe.__all__)
def test_every_public_name_exists(name):
    assert getattr(ucpe, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Fisheye2'"):
        ucpe.Fisheye2  # noqa: B018


def test_importing_and_asking_for_help_load_nothing_heavy():
    code = (
        "import sys, ucpe, ucpe.cli; sys.argv = ['ucpe', '--help']; ucpe.cli.main(); "
        "print([name for name in ('torch', 'numpy', 'diffusers', 'cv2', 'matplotlib') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(ucpe.__file__).parents[1])}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.strip().endswith("[]")
