"""`ucpe adapter`."""

from ucpe.adapters import CameraAdapter
from ucpe.cli.adapter import main


def test_info_prints_the_paper_beside_ours(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "140")
    main(["info"])
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if "UCPE 1/8 " in line)
    assert all(text in row for text in ("35,637,120", "2.51%", "0.49%", "35.6M", "192 x 1"))
    assert any("354,908,160" in line and "354M" in line for line in lines)
    main(["info", "--preset", "wan2.2-ti2v-5b"])
    assert "paper" not in capsys.readouterr().out
    adapter = CameraAdapter(width=64, base_heads=2, num_blocks=1, token_position="corner", up_map="released")
    adapter.save_pretrained(tmp_path / "adapter")
    main(["info", str(tmp_path / "adapter")])
    assert "orientation: True" in capsys.readouterr().out
    main(["export", str(tmp_path / "adapter"), str(tmp_path / "x.bin")])
    assert (tmp_path / "x.bin").exists()
