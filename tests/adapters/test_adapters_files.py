import json
import pickle

import pytest
import torch

from ucpe.adapters import CameraAdapter, CameraCtrl, ReCamMaster, load_adapter


@pytest.fixture
def trained(scene, randomise):
    return randomise(CameraAdapter.for_transformer(scene.transformer, compression=2))


def released_adapter(randomise, **options):
    """An adapter with the sizes of Wan's heads, as released checkpoints have."""
    sizes = {"width": 256, "base_heads": 2, "num_blocks": 2, "compression": 2}
    geometry = {"token_position": "corner", "up_map": "released", "mask_invalid": False, "dark_token_world": "gravity"}
    return randomise(CameraAdapter(**sizes, **geometry, **options))


@pytest.mark.parametrize("options", [{}, {"encoding": "gta", "placement": "post", "orientation": False}])
def test_saved_and_loaded_to_the_bit(scene, randomise, options, tmp_path):
    adapter = randomise(CameraAdapter.for_transformer(scene.transformer, compression=2, **options))
    adapter.attach(scene.transformer)
    output = scene.steered(adapter)
    adapter.save_pretrained(tmp_path / "nested" / "adapter")
    adapter.detach()
    assert sorted(p.name for p in (tmp_path / "nested" / "adapter").iterdir()) == [
        "config.json",
        "diffusion_pytorch_model.safetensors",
    ]
    assert [p.name for p in (tmp_path / "nested").iterdir()] == ["adapter"]
    loaded = CameraAdapter.from_pretrained(tmp_path / "nested" / "adapter")
    for name, value in adapter.config.items():
        if not name.startswith("_"):
            assert loaded.config[name] == (list(value) if isinstance(value, tuple) else value), name
    loaded.attach(scene.transformer)
    assert torch.equal(scene.steered(loaded), output)


def test_saving_the_base_saves_no_adapter(scene, trained, tmp_path, make_wan):
    trained.attach(scene.transformer)
    scene.transformer.save_pretrained(tmp_path / "base")
    again = type(scene.transformer).from_pretrained(tmp_path / "base")
    assert again.state_dict().keys() == make_wan().state_dict().keys()
    assert "encoding" not in json.loads((tmp_path / "base" / "config.json").read_text())


@pytest.mark.parametrize("kind", [CameraAdapter, ReCamMaster, CameraCtrl])
def test_load_adapter_finds_the_kind(scene, kind, tmp_path):
    kind.for_transformer(scene.transformer).save_pretrained(tmp_path / "adapter")
    assert type(load_adapter(tmp_path / "adapter")) is kind


@pytest.mark.parametrize("orientation", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_round_trip_through_the_released_layout(randomise, tmp_path, orientation, wrapped):
    adapter = released_adapter(randomise, orientation=orientation)
    path = tmp_path / "pytorch_model.bin"
    adapter.export_released(path)
    state = torch.load(path, weights_only=True)
    assert ("pipe.dit.blocks.1.cam_self_attn.cam_encoder.bias" in state) is orientation
    assert state["pipe.dit.blocks.0.cam_self_attn.q_proj.weight"].shape == (128, 256)
    if wrapped:
        torch.save({"state_dict": state}, path)
    again = CameraAdapter.from_released(path)
    assert (again.heads, again.head_dim, again.config.orientation) == (1, 128, orientation)
    assert (again.config.token_position, again.config.up_map, again.config.mask_invalid) == (
        "corner",
        "released",
        False,
    )
    assert CameraAdapter.from_released(path, mask_invalid=True).config.mask_invalid
    for (name, one), (other_name, other) in zip(adapter.state_dict().items(), again.state_dict().items()):
        assert name == other_name and torch.equal(one, other)
    again.export_released(tmp_path / "again.bin")
    assert torch.load(tmp_path / "again.bin", weights_only=True).keys() == state.keys()


def test_released_weights_keep_their_geometry(randomise, scene, tmp_path):
    """The flags survive saving, and make tokens sit at their corners: the centre ray is half a token further."""
    adapter = released_adapter(randomise)
    adapter.save_pretrained(tmp_path / "adapter")
    released = CameraAdapter.from_pretrained(tmp_path / "adapter")
    plain = CameraAdapter(width=256, base_heads=2, num_blocks=2, compression=2)
    camera = scene.cameras[1]
    theirs, ours = (a.encode(camera, height=32, width=32) for a in (released, plain))
    assert not torch.allclose(theirs.operator.blocks, ours.operator.blocks)
    axis = theirs.operator.inverse[0, 3, :3, 2].double()
    torch.testing.assert_close(axis, camera.zero_first_yaw().c2w[0, :3, 2], atol=1e-6, rtol=0)
    assert not torch.allclose(theirs.features, ours.features, atol=1e-3)


def test_a_checkpoint_of_the_whole_model_gives_its_adapter(randomise, tmp_path):
    adapter, path = released_adapter(randomise), tmp_path / "pytorch_model.bin"
    adapter.export_released(path)
    base = {"pipe.dit.head.weight": torch.zeros(2), "pipe.dit.blocks.0.self_attn.q.weight": torch.zeros(2, 2)}
    torch.save({**torch.load(path, weights_only=True), **base}, path)
    with pytest.warns(UserWarning, match="20 weights of the adapter used, 2 others left"):
        again = CameraAdapter.from_released(path)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in adapter.state_dict().items())
    torch.save(base, path)
    with pytest.raises(ValueError, match="no released camera adapter: 2 weights of a base model"):
        CameraAdapter.from_released(path)


def test_without_lat_up_dark_tokens_carry_the_identity_of_the_gravity_aligned_world(randomise, scene, tmp_path):
    adapter, path = released_adapter(randomise, orientation=False), tmp_path / "pytorch_model.bin"
    adapter.export_released(path)
    released, first = CameraAdapter.from_released(path), CameraAdapter.from_released(path, dark_token_world="first")
    camera = scene.cameras[1]
    axes = [a.encode(camera, height=32, width=32).operator.inverse[0, 3, :3, 2].double() for a in (released, first)]
    for axis, world in zip(axes, (camera.zero_first_yaw(), camera.relative_to_first())):
        torch.testing.assert_close(axis, world.c2w[0, :3, 2], atol=1e-6, rtol=0)


def test_wrong_or_partial_checkpoints_are_refused_by_name(randomise, tmp_path):
    adapter = released_adapter(randomise)
    path = tmp_path / "pytorch_model.bin"
    adapter.export_released(path)
    state = torch.load(path, weights_only=True)
    prefix = "pipe.dit.blocks.1.cam_self_attn."

    partial = {name: value for name, value in state.items() if name != prefix + "k_proj.bias"}
    torch.save(partial, path)
    with pytest.raises(ValueError, match=r"1 missing \(blocks\.1\.k_proj\.bias\); 0 unexpected"):
        CameraAdapter.from_released(path)
    torch.save({**state, prefix + "gate.weight": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"0 missing; 1 unexpected \(blocks\.1\.gate\.weight\)"):
        CameraAdapter.from_released(path)
    torch.save({**state, prefix + "cam_encoder.weight": torch.zeros(256, 12)}, path)
    with pytest.raises(
        ValueError, match=r"of another shape \(blocks\.1\.cam_encoder\.weight: \(256, 12\), expected \(256, 3\)"
    ):
        CameraAdapter.from_released(path)
    torch.save({"weight": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match=r"no released camera adapter: 1 unexpected \(weight\)"):
        CameraAdapter.from_released(path)
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="no state dict"):
        CameraAdapter.from_released(path)
    with pytest.raises(OSError):
        CameraAdapter.from_released(tmp_path / "absent.bin")


class Harmful:
    def __reduce__(self):
        return (print, ("a pickle ran code",))


def test_pickled_code_is_not_run(tmp_path, capsys):
    path = tmp_path / "pytorch_model.bin"
    torch.save({"state_dict": Harmful()}, path)
    with pytest.raises(ValueError, match="not loaded"):
        CameraAdapter.from_released(path)
    path.write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(ValueError, match="not loaded"):
        CameraAdapter.from_released(path)
    assert "ran code" not in capsys.readouterr().out


def test_export_of_another_geometry_warns(trained, tmp_path):
    with pytest.warns(UserWarning, match="token_position='center'"):
        trained.export_released(tmp_path / "x.bin")


def test_an_adapter_with_tuned_weights_for_another_transformer_is_refused(make_wan, tmp_path):
    adapter = ReCamMaster.for_transformer(make_wan())
    adapter._tuned = {"blocks.0.attn1.to_x.weight": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"another transformer.*1 unexpected \(blocks\.0\.attn1\.to_x\.weight\)"):
        adapter.attach(make_wan())
