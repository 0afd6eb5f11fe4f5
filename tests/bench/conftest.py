import pytest

from ucpe.bench import view_synthesis_data


@pytest.fixture
def tiny_shards(monkeypatch):
    """Shards of four clips."""
    monkeypatch.setattr(view_synthesis_data, "CLIPS_PER_SHARD", 4)
