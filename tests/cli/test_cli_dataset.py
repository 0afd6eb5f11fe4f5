"""`ucpe dataset`: statistics, export and captions of a folder of clips."""

import pytest

from ucpe.cli.dataset import main
from ucpe.synthesis.clips import ClipSettings, synthesize


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dataset")
    synthesize(["worlds:outdoor"], folder, 2, ClipSettings(frames=2, height=32, width=56))
    return folder


def test_statistics_and_shards(dataset, tmp_path, capsys):
    main(["stats", str(dataset)])
    assert '"clips": 2' in capsys.readouterr().out and (dataset / "statistics/cameras.png").is_file()
    main(["export", str(dataset), "-o", str(tmp_path / "shards")])
    assert len(list((tmp_path / "shards").glob("*.tar"))) == 1
    with pytest.raises(ValueError, match="PanShot"):
        main(["stats", str(tmp_path)])


def test_a_dry_run_says_what_would_be_sent(dataset, capsys):
    address = ["--url", "http://localhost:1", "--model", "m"]
    main(["caption", str(dataset), *address, "--dry-run", "--again"])
    assert "2 of 2 clips would be sent" in capsys.readouterr().out
