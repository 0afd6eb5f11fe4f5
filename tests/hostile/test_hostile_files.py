"""A few hundred damaged files with a fixed seed; `make fuzz` tries as many as one likes with a new one."""

import importlib.util
from pathlib import Path

SPECIFICATION = importlib.util.spec_from_file_location("fuzz", Path(__file__).with_name("fuzz.py"))
fuzz = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(fuzz)


def test_damaged_files_are_read_or_refused_in_one_line():
    text, others = fuzz.summary(fuzz.fuzz(seed=0, cases=400), seed=0)
    assert others == 0, text
