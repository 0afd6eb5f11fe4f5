"""Moved to `ucpe.video`, which every room may import."""

from ucpe.video import *  # noqa: F403
