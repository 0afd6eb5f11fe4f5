"""SCoPE against its definition inside attention, and its released layout against diffusers' own conversion."""

import pytest
import torch
from diffusers import WanTransformer3DModel
from diffusers.loaders.single_file_utils import convert_wan_transformer_to_diffusers
from safetensors.torch import load_file, save_file
from torch.nn.functional import scaled_dot_product_attention

from ucpe.adapters import CameraAdapter, SCoPE, load_adapter
from ucpe.adapters.attachment import TUNED_FILE
from ucpe.adapters.scope import TUNED_NAMES
from ucpe.cli.adapter import main
from ucpe.encodings import plucker_rays
from ucpe.lenses import Pinhole
from ucpe.trajectories import Trajectory


@pytest.mark.parametrize("tuned", [True, False])
def test_fresh_adapter_changes_no_bit(scene, tuned):
    before = scene.run()
    adapter = SCoPE.for_transformer(scene.transformer, tuned=tuned).attach(scene.transformer)
    assert torch.equal(scene.steered(adapter), before)
    adapter.detach()
    assert torch.equal(scene.run(), before)


def test_rays_are_added_after_rope(scene, randomise):
    """Self-attention written out: norms, RoPE by complex numbers, then what the released module adds."""
    adapter = randomise(SCoPE.for_transformer(scene.transformer)).attach(scene.transformer)
    attention, layer = scene.transformer.blocks[1].attn1, adapter.blocks[1]
    seen = []
    handle = attention.register_forward_hook(lambda module, args, output: seen.append((args, output)))
    scene.steered(adapter)
    handle.remove()
    adapter.detach()
    (tokens, _, _, (cosine, sine)), output = seen[0]
    camera = scene.cameras[1].relative_to_first()[[0, 4, 8]]
    rays = [scene.cameras[0].relative_to_first()[[0, 4, 8]], camera]
    rays = torch.stack([plucker_rays(c.lens, c.c2w, 2, 3).flatten(0, 2) for c in rays])
    turn = torch.complex(cosine, sine)[..., ::2]
    heads = []
    for projection, norm, added in zip(
        (attention.to_q, attention.to_k), (attention.norm_q, attention.norm_k), layer(rays)
    ):
        pairs = torch.view_as_complex(norm(projection(tokens)).unflatten(-1, (2, 16, 2)).contiguous())
        turned = torch.view_as_real(pairs * turn).flatten(2)
        heads.append((turned + added[:, 0]).unflatten(-1, (2, 32)).transpose(1, 2))
    value = attention.to_v(tokens).unflatten(-1, (2, 32)).transpose(1, 2)
    expected = attention.to_out[0](scaled_dot_product_attention(*heads, value).transpose(1, 2).flatten(2))
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


def test_cameras_steer_and_the_world_frame_is_free(scene, randomise, fisheye, other_model_lens):
    adapter = randomise(SCoPE.for_transformer(scene.transformer), 1.0).attach(scene.transformer)
    output = scene.steered(adapter)
    world = Trajectory.orbit(Pinhole(xfov=60), degrees=70, frames=9, pitch=20).c2w[5]
    moved = scene.steered(adapter, [camera.transformed(world) for camera in scene.cameras])
    torch.testing.assert_close(moved, output, atol=3e-4, rtol=3e-4)
    for lens in (fisheye, other_model_lens):
        other = scene.steered(adapter, [camera.with_lens(lens) for camera in scene.cameras])
        assert other.isfinite().all() and (other - output).abs().max() > 3e-3


def released_folder(transformer, folder, adapter):
    """The transformer and adapter in the names of the released weights, in two files."""
    originals = {
        "condition_embedder.time_embedder.linear_1": "time_embedding.0",
        "condition_embedder.time_embedder.linear_2": "time_embedding.2",
        "condition_embedder.text_embedder.linear_1": "text_embedding.0",
        "condition_embedder.text_embedder.linear_2": "text_embedding.2",
        "condition_embedder.time_proj": "time_projection.1",
        "proj_out": "head.head",
        **{f".{ours}.": f".{theirs}." for theirs, ours in TUNED_NAMES.items()},
        ".attn2.to_q.": ".cross_attn.q.",
        ".attn2.to_k.": ".cross_attn.k.",
        ".attn2.to_v.": ".cross_attn.v.",
        ".attn2.to_out.0.": ".cross_attn.o.",
        ".attn2.": ".cross_attn.",
    }
    state = {}
    for name, value in transformer.state_dict().items():
        for ours, theirs in originals.items():
            name = name.replace(ours, theirs)
        name = "head.modulation" if name == "scale_shift_table" else name.replace("scale_shift_table", "modulation")
        state[name] = value.clone()
    for name, value in adapter.state_dict().items():
        _, block, rest = name.split(".", 2)
        state[f"blocks.{block}.self_attn.plucker_pe.{rest}"] = value.clone()
    folder.mkdir()
    names = sorted(state)
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = folder / f"diffusion_pytorch_model-0000{number}-of-00002.safetensors"
        save_file({name: state[name].contiguous() for name in part}, file)
    return {name: value for name, value in state.items() if "plucker_pe" not in name}


def test_released_weights_load_by_their_names(scene, make_wan, randomise, tmp_path):
    trained = randomise(make_wan(), 0.1)
    adapter = randomise(SCoPE.for_transformer(trained))
    base = released_folder(trained, tmp_path / "high_noise_model", adapter)
    converted = convert_wan_transformer_to_diffusers(dict(base))
    assert converted.keys() == trained.state_dict().keys()
    loaded = load_adapter(tmp_path / "high_noise_model")
    assert isinstance(loaded, SCoPE) and loaded.config["tuned"]
    adapter.attach(trained)
    scene.transformer, own = trained, scene.transformer
    expected = scene.steered(adapter)
    untrained = {n: v for n, v in converted.items() if n not in dict(loaded.tuned_parameters(own))}
    own.load_state_dict(untrained, strict=False)
    scene.transformer = own
    before = scene.run()
    loaded.attach(own)
    torch.testing.assert_close(scene.steered(loaded), expected, atol=1e-6, rtol=1e-6)
    loaded.detach()
    assert torch.equal(scene.run(), before)
    loaded.save_pretrained(tmp_path / "ours")
    again = load_adapter(tmp_path / "ours").attach(own)
    torch.testing.assert_close(scene.steered(again), expected, atol=1e-6, rtol=1e-6)


def test_the_released_expert_of_low_noise_tunes_nothing(scene, tmp_path):
    before = scene.run()
    released_folder(scene.transformer, tmp_path / "low_noise_model", SCoPE.for_transformer(scene.transformer))
    main(["import", str(tmp_path / "low_noise_model"), str(tmp_path / "ours")])
    assert not (tmp_path / "ours" / TUNED_FILE).exists()
    adapter = load_adapter(tmp_path / "ours").attach(scene.transformer)
    assert not adapter.tunes_transformer and not adapter.tuned_parameters(scene.transformer)
    assert torch.equal(scene.steered(adapter), before)


def test_an_expert_of_true_size_has_as_many_weights_as_the_released_ones():
    """The release notes count 1,575; trained beside the rays were self-attention, feed-forward layers and a norm."""
    sizes = {"num_attention_heads": 40, "attention_head_dim": 128, "ffn_dim": 13824, "num_layers": 40}
    with torch.device("meta"):
        transformer = WanTransformer3DModel(**sizes, in_channels=36)
        adapter = SCoPE.for_transformer(transformer)
    assert len(transformer.state_dict()) + len(adapter.state_dict()) == 1575
    assert sum(parameter.numel() for _, parameter in adapter.tuned_parameters(transformer)) == 9_859_010_560


def test_what_is_no_scope_is_refused(scene, tmp_path):
    released_folder(scene.transformer, tmp_path / "model", SCoPE.for_transformer(scene.transformer))
    _, second = sorted((tmp_path / "model").glob("*.safetensors"))
    second.rename(tmp_path / "kept")
    with pytest.raises(ValueError, match=r"no SCoPE of 2 blocks: \d+ missing|no released SCoPE"):
        SCoPE.from_released(tmp_path / "model")
    save_file({**load_file(tmp_path / "kept"), "blocks.0.self_attn.cam.weight": torch.zeros(1)}, second)
    with pytest.raises(ValueError, match=r"1 unexpected \(blocks.0.self_attn.cam.weight\)"):
        SCoPE.from_released(tmp_path / "model")
    CameraAdapter.for_transformer(scene.transformer, compression=2).save_pretrained(tmp_path / "other")
    with pytest.raises(ValueError, match="no released SCoPE"):
        SCoPE.from_released(tmp_path / "other")
    with pytest.raises(ValueError, match="not of LTXVideoTransformer3DModel"):
        SCoPE(64, 2, backbone="LTXVideoTransformer3DModel")
