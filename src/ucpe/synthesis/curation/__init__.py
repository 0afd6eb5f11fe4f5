"""Stage 1: from raw 360 degree videos to clips that are worth filming again (supplement A.2)."""
