"""`ucpe report`: runs of `ucpe evaluate` side by side."""

import pytest
from tests.studies import make_study

from ucpe.cli.evaluate import main as evaluate
from ucpe.cli.report import main
from ucpe.evaluation.run import load_results


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_study(tmp_path)


def test_runs_side_by_side_with_quoted_rows(study, capsys):
    common = ["--cameras", "cameras", "--pose", "stored", "--pose-results", "poses"]
    evaluate(["videos", *common, "--protocol", "paper", "-o", "first"])
    evaluate(["videos", *common, "--label", "other", "-o", "second", "--fid", "nowhere.pt"])
    main(["compare", "first", "second", "--quote", "1", "D", "-o", "both"])
    printed = capsys.readouterr().out
    assert "| other |" in printed
    assert "UCPE (quoted)" in printed
    assert load_results("second").quality["FID"].reason.startswith("FID could not be computed")
    assert load_results("first").protocol == "paper"
    page = (study / "both" / "compare.html").read_text()
    assert "<td>other" in page and "<tr class='quoted'>" in page and page.count("<table") == 1
    main(["publish", "second", "-o", "board/ours.json", "--label", "published"])
    assert "board/ours.json: published, protocol robust, 4 videos of the cameras" in capsys.readouterr().out
    main(["compare", "board", "-o", "all"])
    assert "| published |" in capsys.readouterr().out
    with pytest.raises(ValueError, match="one of --cameras, --dataset, --realestate10k"):
        evaluate(["videos"])
    with pytest.raises(ValueError, match="no results at"):
        main(["compare", "nowhere"])
    (study / "first" / "results.json").write_text('{"format": "ucpe-evaluation-0"}')
    with pytest.raises(ValueError, match="not written by this version"):
        main(["compare", "first"])
