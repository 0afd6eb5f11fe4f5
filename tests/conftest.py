"""One thread per test process: tests run side by side, and some of them fork."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
