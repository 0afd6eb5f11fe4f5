"""`ucpe lens`."""

import json

import pytest

from ucpe.cli.lens import main
from ucpe.lenses import UCM, KannalaBrandt, load_lens


def test_show_a_name(tmp_path, capsys):
    picture = tmp_path / "lens.png"
    main(["show", "fisheye", "--xfov", "170", "--pitch", "15", "--height", "48", "--width", "84", "-o", str(picture)])
    printed = capsys.readouterr().out
    assert "170.00°" in printed and str(picture) in printed
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("name", ["division", "field-of-view"])
def test_bend_of_a_lens_with_one_parameter(name, tmp_path, capsys):
    size = ["--height", "48", "--width", "84"]
    main(["show", name, "--k", "0.2", "--xfov", "80", *size, "-o", str(tmp_path / "lens.png")])
    assert "k 0.2" in capsys.readouterr().out


def test_show_a_file(tmp_path, capsys):
    KannalaBrandt(fx=300, width=640, height=480, k1=0.01).save(tmp_path / "c.yaml", "kalibr")
    main(["show", str(tmp_path / "c.yaml"), "-o", str(tmp_path / "c.png")])
    assert "640 x 480" in capsys.readouterr().out


def test_convert(tmp_path):
    source, target = tmp_path / "lens.json", tmp_path / "cameras.txt"
    UCM(xfov=180, xi=2.0).save(source)
    main(["convert", str(source), str(target)])
    assert "1 EUCM 832 480" in target.read_text()
    main(["convert", "wide", str(tmp_path / "k.yaml"), "--format", "kalibr", "--xi", "0.9"])
    assert load_lens(tmp_path / "k.yaml").parameters["xi"] == 0.9


def test_fit(tmp_path, capsys):
    target = tmp_path / "ucm.json"
    main(["fit", "kannala-brandt", "--xfov", "160", "--model", "ucm", "-o", str(target)])
    assert "off by" in capsys.readouterr().out
    assert json.loads(target.read_text())["model"] == "ucm"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["show", "telephoto"], "'telephoto' is neither a file nor the name of a lens: pinhole, wide"),
        (["show", "nofile.yaml"], "'nofile.yaml' is neither a file nor the name of a lens"),
        (["show", "wide", "--height", "0"], "height must be a whole number of pixels, at least 1, got 0"),
        (["fit", "wide", "--width", "0"], "width must be a whole number of pixels, at least 1, got 0"),
        (["fit", "wide", "--model", "cube"], "--model must be one of"),
        (["convert", "wide", "out.txt"], "saved as .json or .yaml"),
        (["show", "pinhole", "--xi", "2"], "pinhole: .*'xi'"),
    ],
)
def test_errors(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        main(arguments)
    assert not list(tmp_path.iterdir())


def test_parameters_do_not_change_a_file(tmp_path):
    UCM(xfov=90).save(tmp_path / "a.json")
    with pytest.raises(ValueError, match="--xfov changes a named lens"):
        main(["fit", str(tmp_path / "a.json"), "--xfov", "100"])


def test_one_entry_of_a_batch(tmp_path, capsys):
    source = str(tmp_path / "a.json")
    UCM(xfov=[90.0, 100.0], xi=0.5).save(source)
    main(["fit", source, "--camera", "1", "--model", "eucm", "--height", "48", "--width", "84"])
    assert "xfov=100" in capsys.readouterr().out
    main(["show", source, "--camera", "0", "--height", "48", "--width", "84", "-o", str(tmp_path / "a.png")])
    assert "90.00°" in capsys.readouterr().out
    for command in ("fit", "show"):
        with pytest.raises(ValueError, match=r"a\.json: holds a batch of lenses of shape \(2,\): .* with .*a\.json:0"):
            main([command, source])
