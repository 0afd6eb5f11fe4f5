"""Reading files that are damaged, too large or lead astray."""

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image

from ucpe import reading


def test_a_limit_says_its_name_and_can_be_raised(monkeypatch):
    limit = reading.Limit("UCPE_MAX_APPLES", 3, "apples")
    limit.check(3, "basket")
    with pytest.raises(ValueError, match=r"basket: more apples \(4\) than UCPE_MAX_APPLES=3 allows; set that"):
        limit.check(4, "basket")
    with pytest.raises(ValueError, match="apples"):
        limit.check(float("nan"), "basket")
    monkeypatch.setenv("UCPE_MAX_APPLES", "4")
    limit.check(4, "basket")
    monkeypatch.setenv("UCPE_MAX_APPLES", "many")
    with pytest.raises(ValueError, match="UCPE_MAX_APPLES must be a whole number, got 'many'"):
        limit.check(1, "basket")


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../b", "..", "", "a\0b", None, 3, ["a"]])
def test_a_path_stays_inside(name, tmp_path):
    with pytest.raises(ValueError, match=r"list.json"):
        reading.inside(tmp_path, name, "list.json")


def test_a_path_inside(tmp_path):
    assert reading.inside(tmp_path, "a/../b/c.txt", "x") == tmp_path / "b" / "c.txt"


@pytest.mark.parametrize(
    "text, message",
    [
        ("[" * 100_000, "nested more than 100"),
        ("[" * 200 + "]" * 200, "UCPE_MAX_NESTING"),
        ('{"a": ' + "9" * 400 + "}", "a number of 400 digits"),
        ('{"a": ' + "9" * 5000 + "}", "a number of 5000 digits"),
        ('{"a": \n1,}', "line 2, column [34]: not JSON"),
    ],
)
def test_json(text, message, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        reading.read_json(tmp_path / "a.json")
    assert str(error.value).startswith(str(tmp_path / "a.json")) and len(str(error.value)) < 500


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi")
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n" for before, name in zip("abcdefgh", "bcdefghi")
)


@pytest.mark.parametrize(
    "text, message",
    [
        (LAUGHS, "UCPE_MAX_YAML_NODES"),
        (MERGES, "UCPE_MAX_YAML_NODES"),
        ("a: &a [*a]", "UCPE_MAX_YAML_NODES"),
        ("- " * 100_000, "UCPE_MAX_NESTING"),
        ("a: [" + "[" * 100_000, "UCPE_MAX_NESTING"),
        ("a: " + "9" * 400, "a number of 400 digits"),
        ("a: [1, 2\nb: 3", "line 2: not YAML"),
        ("a: !!python/object/apply:os.system ['true']", "not YAML .*could not determine a constructor"),
        ("a: 2020-99-99", "a.yaml: month must be in"),
        ("? [1, 2]\n: 3", "not YAML"),
        ("a: \x01", "not YAML"),
        ("*a", "not YAML .*alias"),
    ],
)
def test_yaml(text, message, tmp_path):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        reading.read_yaml(tmp_path / "a.yaml")
    assert str(error.value).startswith(str(tmp_path / "a.yaml")) and "\n" not in str(error.value)


def test_good_yaml(tmp_path):
    (tmp_path / "a.yaml").write_text("a: &x [1, 2]\nb: *x\nc: {<<: {d: 1e3}, e: 0x10}\n")
    assert reading.read_yaml(tmp_path / "a.yaml") == {"a": [1, 2], "b": [1, 2], "c": {"d": "1e3", "e": 16}}
    (tmp_path / "a.yaml").write_text("")
    assert reading.read_yaml(tmp_path / "a.yaml") is None


def test_texts_and_lines(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xff\xfe1 2 3")
    with pytest.raises(ValueError, match=r"a.txt: not a text file"):
        reading.read_text(path)
    monkeypatch.setenv("UCPE_MAX_LINE", "10")
    path.write_text("1 2 3\n" + "4" * 11)
    with pytest.raises(ValueError, match=r"a.txt: more characters in a line"):
        reading.read_lines(path)
    monkeypatch.setenv("UCPE_MAX_TEXT_BYTES", "16")
    with pytest.raises(ValueError, match=r"a.txt: more bytes of text"):
        reading.read_text(path)


def header(shape, kind="<f8"):
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"shape": shape, "fortran_order": False, "descr": kind})
    return buffer.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        header((10**12, 3, 4)) + b"0" * 64,
        header((10**30, 3, 4)) + b"0" * 64,
        header((-1, 3, 4)) + b"0" * 64,
        header((2, 3, 4)) + b"0" * 64,
        header((3,), "|O") + b"0" * 64,
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00",
        header((3,))[:-20],
        header((3,)).replace(b"shape", b"shipe"),
        header((3,)).replace(b"(3,)", b"((((")[:-4] + b"((((",
        b"",
    ],
)
def test_damaged_arrays(content, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a.npy: not a plain NumPy array"):
        reading.read_array(path)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.npy", content)
    with pytest.raises(ValueError, match=r"a.npz: not a plain NumPy array"):
        reading.read_arrays(tmp_path / "a.npz")


def test_good_arrays(tmp_path):
    arrays = {"data": np.arange(12.0).reshape(3, 4), "none": np.zeros((0, 4)), "names": np.array(["a", "b"])}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    read = reading.read_arrays(tmp_path / "a.npz")
    assert read.keys() == arrays.keys() and all((read[name] == arrays[name]).all() for name in arrays)
    np.save(tmp_path / "a.npy", np.asfortranarray(arrays["data"]))
    assert (reading.read_array(tmp_path / "a.npy") == arrays["data"]).all()


def test_zip_bombs(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", data=np.zeros(10**6))
    monkeypatch.setenv("UCPE_MAX_INFLATED_BYTES", "1000000")
    with pytest.raises(ValueError, match=r"a.npz: more bytes when inflated \(8,000,128\)"):
        reading.read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "stored.npz", data=np.zeros(10**6))
    assert reading.read_arrays(tmp_path / "stored.npz")["data"].shape == (10**6,)
    for content in (b"", b"PK\x03\x04", (tmp_path / "a.npz").read_bytes()[:-30]):
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"b.npz: not a whole zip archive"):
            reading.read_arrays(tmp_path / "b.npz")


def test_images(tmp_path, monkeypatch):
    values = np.linspace(0, 65535, 16 * 16).astype(np.uint16).reshape(16, 16)
    Image.fromarray(values).save(tmp_path / "grey16.png")
    image = np.asarray(reading.open_image(tmp_path / "grey16.png"))
    assert image.shape == (16, 16, 3) and np.abs(image[..., 0] - values / 257).max() <= 0.5
    Image.fromarray(values.astype(np.float32)).save(tmp_path / "float.tiff")
    with pytest.raises(ValueError, match=r"float.tiff: .*save it with 8 or 16 bits"):
        reading.open_image(tmp_path / "float.tiff")
    turned = Image.new("RGB", (8, 4))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)
    assert reading.open_image(tmp_path / "turned.jpg").size == (4, 8)
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    with pytest.raises(ValueError, match=r"bomb.png: more pixels in an image \(400,000,000\) than UCPE_MAX_IMAGE"):
        reading.open_image(tmp_path / "bomb.png")
    for content in (b"", b"\x89PNG\r\n\x1a\n", (tmp_path / "grey16.png").read_bytes()[:60]):
        (tmp_path / "damaged.png").write_bytes(content)
        with pytest.raises(ValueError, match=r"damaged.png: not a readable image"):
            reading.open_image(tmp_path / "damaged.png")
    assert Image.MAX_IMAGE_PIXELS is not None


def test_json_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n[2\n')
    lines = reading.read_json_lines(tmp_path / "a.jsonl")
    assert next(lines) == (f"{tmp_path / 'a.jsonl'}, line 1", {"a": 1})
    with pytest.raises(ValueError, match=r"a.jsonl, line 3, line 1, column 3: not JSON"):
        next(lines)
    (tmp_path / "list.json").write_text(json.dumps([1]))
    with pytest.raises(ValueError, match="expected a JSON object, found a list"):
        reading.read_json_object(tmp_path / "list.json")
