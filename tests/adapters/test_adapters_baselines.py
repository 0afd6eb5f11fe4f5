import pytest
import torch
from torch.nn.functional import conv2d, linear

from ucpe.adapters import CameraCtrl, ReCamMaster

BASELINES = [ReCamMaster, CameraCtrl]


@pytest.mark.parametrize("orientation", [False, True])
@pytest.mark.parametrize("kind", BASELINES)
def test_fresh_baseline_changes_no_bit(scene, kind, orientation):
    before = scene.run()
    adapter = kind.for_transformer(scene.transformer, orientation=orientation).attach(scene.transformer)
    assert torch.equal(scene.steered(adapter), before)


def test_recammaster_equals_reference(scene, randomise):
    """Raw parameters of latent frames added to the input of self-attention, whose output is projected."""
    adapter = randomise(ReCamMaster.for_transformer(scene.transformer))
    condition = adapter.encode(scene.cameras, **scene.size)
    camera = scene.cameras[0].relative_to_first()
    pose = camera.c2w[4, :3].flatten().float()
    torch.testing.assert_close(condition.features[0, 1, :12], pose)
    torch.testing.assert_close(condition.features[0, 1, 12:], torch.tensor([150 / 180, 1.2]))

    attention = scene.transformer.blocks[0].attn1
    rope = scene.transformer.rope(scene.latents)
    seen = []
    handle = attention.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    adapter.attach(scene.transformer)
    outputs = []
    final = attention.register_forward_hook(lambda module, args, output: outputs.append(output))
    scene.steered(adapter)
    handle.remove(), final.remove()
    adapter.detach()
    layers = adapter.blocks[0]
    embedded = linear(condition.features, layers.cam_encoder.weight, layers.cam_encoder.bias)
    tokens = seen[0] + torch.stack([clip[[0] * 6 + [1] * 6 + [2] * 6] for clip in embedded])
    expected = linear(attention(tokens, rotary_emb=rope), layers.projector.weight, layers.projector.bias)
    torch.testing.assert_close(outputs[0], expected, atol=1e-5, rtol=1e-5)


def test_cameractrl_equals_reference(scene, randomise):
    """Plücker rays of every pixel, four frames to a token, unshuffled and convolved, added to the embedded video."""
    adapter = randomise(CameraCtrl.for_transformer(scene.transformer), 0.02)
    condition = adapter.encode(scene.cameras, **scene.size)
    assert condition.features.shape == (2, 3, 24, 32, 48)
    camera = scene.cameras[1].relative_to_first()
    rays = camera.lens.rays(32, 48, dtype=torch.float64)
    frames = [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    video = []
    for frame in frames:
        directions = rays.directions @ camera.c2w[frame, :3, :3].T
        moments = torch.linalg.cross(camera.c2w[frame, :3, 3].expand_as(directions), directions)
        video.append(torch.cat([directions, moments], -1).permute(2, 0, 1).float())
    packed = torch.stack([torch.cat(video[i : i + 4]) for i in (0, 4, 8)])
    torch.testing.assert_close(condition.features[1], packed, atol=1e-6, rtol=1e-5)

    patches = packed.reshape(3, 24, 4, 8, 6, 8).permute(0, 1, 3, 5, 2, 4).reshape(3, 24 * 64, 4, 6)
    features = conv2d(patches, adapter.conv.weight, adapter.conv.bias, stride=2)
    inner = conv2d(features, *adapter.residual_block.conv1.parameters(), padding=1).relu()
    features = features + conv2d(inner, *adapter.residual_block.conv2.parameters(), padding=1)
    seen = []
    adapter.attach(scene.transformer)
    handle = scene.transformer.patch_embedding.register_forward_hook(lambda module, args, output: seen.append(output))
    scene.steered(adapter)
    handle.remove()
    adapter.detach()
    plain = scene.transformer.patch_embedding(scene.latents)
    torch.testing.assert_close(seen[0][1], plain[1] + features.transpose(0, 1), atol=1e-4, rtol=1e-4)


def test_settings_relative_and_gravity_aligned(scene):
    for kind in BASELINES:
        relative, aligned = (kind.for_transformer(scene.transformer, orientation=o) for o in (False, True))
        tilt = torch.eye(4, dtype=torch.float64)
        tilt[1, 1] = tilt[2, 2] = 0.8
        tilt[1, 2], tilt[2, 1] = -0.6, 0.6
        tilted = [camera.transformed(tilt) for camera in scene.cameras]
        for adapter, changes in ((relative, False), (aligned, True)):
            one, other = (adapter.encode(cameras, **scene.size).features for cameras in (scene.cameras, tilted))
            assert torch.allclose(one, other, atol=1e-5) is not changes
    pitch = ReCamMaster.for_transformer(scene.transformer, orientation=True).encode(scene.cameras, **scene.size)
    rotation = pitch.features[1, 0, :12].view(3, 4)[:, :3]
    torch.testing.assert_close(rotation[1, 2], -torch.sin(torch.deg2rad(torch.tensor(15.0))))
    torch.testing.assert_close(rotation[0], torch.tensor([1.0, 0.0, 0.0]), atol=1e-6, rtol=0)


def test_what_baselines_train(scene):
    transformer = scene.transformer
    attention = {
        f"blocks.{i}.attn1.{name}" for i in range(2) for name, _ in transformer.blocks[i].attn1.named_parameters()
    }
    names = {parameter: name for name, parameter in transformer.named_parameters()}
    for kind, expected in ((ReCamMaster, attention), (CameraCtrl, set(names.values()))):
        adapter = kind.for_transformer(transformer).attach(transformer)
        adapter.set_trainable(transformer)
        scene.steered(adapter).square().mean().backward()
        trained = {name for parameter, name in names.items() if parameter.grad is not None}
        assert trained == expected
        assert sum(p.numel() for p in adapter.trainable_parameters(transformer)) == sum(
            p.numel() for p in [*adapter.parameters(), *transformer.parameters()] if p.requires_grad
        )
        transformer.zero_grad(set_to_none=True)
        adapter.detach()


@pytest.mark.parametrize("kind", BASELINES)
def test_tuned_transformer_is_saved_loaded_and_given_back(scene, kind, tmp_path, make_wan):
    before = scene.run().detach()
    adapter = kind.for_transformer(scene.transformer).attach(scene.transformer)
    adapter.set_trainable(scene.transformer)
    optimiser = torch.optim.SGD(adapter.trainable_parameters(scene.transformer), lr=0.5)
    scene.steered(adapter).square().mean().backward()
    optimiser.step()
    trained = scene.steered(adapter).detach()
    assert (trained - before).abs().max() > 1e-3
    adapter.save_pretrained(tmp_path / "adapter")
    adapter.detach()
    assert torch.equal(scene.run(), before)
    adapter.attach(scene.transformer)
    assert torch.equal(scene.steered(adapter), trained)
    adapter.detach()

    loaded = kind.from_pretrained(tmp_path / "adapter").attach(scene.transformer)
    assert torch.equal(scene.steered(loaded), trained)
    loaded.detach()
    assert torch.equal(scene.run(), before)


def test_recammaster_needs_a_lens_with_xi(scene, other_model_lens):
    adapter = ReCamMaster.for_transformer(scene.transformer)
    with pytest.raises(ValueError, match="UCM"):
        adapter.encode(scene.cameras[0].with_lens(other_model_lens), **scene.size)
