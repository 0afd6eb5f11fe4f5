import copy
import gc
import hashlib
import weakref
from functools import partial

import pytest
import torch
from torch.nn.functional import layer_norm, linear

from ucpe.adapters import CameraAdapter, CameraCtrl, ReCamMaster
from ucpe.adapters.camera_adapter import BRANCH_ENCODINGS, head_layout
from ucpe.encodings import camera_attention, camera_operator, lat_up_map
from ucpe.trajectories import Trajectory

KINDS = [CameraAdapter, ReCamMaster, CameraCtrl]


def digest(module):
    hashed = hashlib.sha256()
    for name, value in module.state_dict().items():
        hashed.update(name.encode() + value.numpy().tobytes())
    return hashed.hexdigest()


def rigid(degrees_yaw=70.0, degrees_tilt=0.0):
    """A change of world frame: a turn about the vertical, optionally a tilt, and a move."""
    yaw, tilt = torch.deg2rad(torch.tensor([degrees_yaw, degrees_tilt], dtype=torch.float64))
    one, zero = torch.ones_like(yaw), torch.zeros_like(yaw)
    about_vertical = torch.stack([yaw.cos(), zero, yaw.sin(), zero, one, zero, -yaw.sin(), zero, yaw.cos()]).view(3, 3)
    about_side = torch.stack([one, zero, zero, zero, tilt.cos(), -tilt.sin(), zero, tilt.sin(), tilt.cos()]).view(3, 3)
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[:3, :3] = about_vertical @ about_side
    matrix[:3, 3] = torch.tensor([3.0, -1.0, 2.0])
    return matrix


@pytest.mark.parametrize(
    ("encoding", "placement"),
    [*((name, "parallel") for name in BRANCH_ENCODINGS), *(("ucpe", name) for name in ("pre", "post"))],
)
def test_fresh_adapter_changes_no_bit(scene, encoding, placement):
    before = scene.run()
    adapter = CameraAdapter.for_transformer(scene.transformer, encoding=encoding, placement=placement, compression=2)
    adapter.attach(scene.transformer)
    assert torch.equal(scene.steered(adapter), before)


@pytest.mark.parametrize("kind", KINDS)
def test_detach_leaves_everything_as_it_was(scene, kind, randomise):
    before, weights = scene.run(), digest(scene.transformer)
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in scene.transformer.modules()]
    adapter = randomise(kind.for_transformer(scene.transformer))
    adapter.attach(scene.transformer)
    assert not torch.equal(scene.steered(adapter), before)
    names = set(scene.transformer.state_dict())
    adapter.detach()
    assert set(scene.transformer.state_dict()) == names
    assert [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in scene.transformer.modules()] == hooks
    assert digest(scene.transformer) == weights
    assert torch.equal(scene.run(), before)


@pytest.mark.parametrize("placement", ["parallel", "pre", "post"])
@pytest.mark.parametrize("encoding", ["ucpe", "gta"])
def test_placement_equals_reference_block(scene, encoding, placement, randomise):
    """The whole transformer against blocks written out here, with the branch where the paper's figure puts it."""
    transformer = scene.transformer
    adapter = CameraAdapter.for_transformer(transformer, encoding=encoding, placement=placement, compression=2)
    randomise(adapter).attach(transformer)
    steered = scene.steered(adapter)
    adapter.detach()

    keep = [camera[torch.tensor([0, 4, 8])] for camera in scene.cameras]
    operators = [camera_operator(encoding, camera.lens, camera.c2w, 2, 3, adapter.head_dim) for camera in keep]
    orientation = torch.stack([lat_up_map(camera.lens, camera.c2w, 2, 3).reshape(18, 3) for camera in keep])

    def branch(index, x):
        layers = adapter.blocks[index]
        x = x + linear(orientation, layers.cam_encoder.weight, layers.cam_encoder.bias)
        clips = []
        for clip, operator in zip(x, operators):
            q, k, v = (
                p(clip).view(18, adapter.heads, -1).transpose(0, 1)
                for p in (layers.q_proj, layers.k_proj, layers.v_proj)
            )
            clips.append(camera_attention(q, k, v, operator).transpose(0, 1).reshape(18, -1))
        return layers.out_proj(torch.stack(clips))

    rope = transformer.rope(scene.latents)
    x = transformer.patch_embedding(scene.latents).flatten(2).transpose(1, 2)
    temb, projected, text, _ = transformer.condition_embedder(scene.timestep, scene.text)
    for index, block in enumerate(transformer.blocks):
        shift, scale, gate, shift2, scale2, gate2 = (block.scale_shift_table + projected.unflatten(1, (6, -1))).chunk(
            6, 1
        )
        normed = layer_norm(x, x.shape[-1:], eps=block.norm1.eps) * (1 + scale) + shift
        if placement == "parallel":
            x = x + gate * (block.attn1(normed, rotary_emb=rope) + branch(index, normed))
        elif placement == "pre":
            x = x + gate * block.attn1(normed + branch(index, normed), rotary_emb=rope)
        else:
            x = x + gate * block.attn1(normed, rotary_emb=rope)
            x = x + branch(index, x)
        x = x + block.attn2(block.norm2(x), text)
        x = x + gate2 * block.ffn(layer_norm(x, x.shape[-1:], eps=block.norm3.eps) * (1 + scale2) + shift2)
    shift, scale = (transformer.scale_shift_table + temb[:, None]).chunk(2, 1)
    x = transformer.proj_out(layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift)
    x = x.view(2, 3, 2, 3, 1, 2, 2, 4).permute(0, 7, 1, 4, 2, 5, 3, 6).reshape(2, 4, 3, 4, 6)
    torch.testing.assert_close(steered, x, atol=2e-5, rtol=2e-5)


def test_only_the_adapter_gets_gradients_and_a_step_changes_the_output(scene):
    adapter = CameraAdapter.for_transformer(scene.transformer, compression=2).attach(scene.transformer)
    adapter.set_trainable(scene.transformer)
    weights, before = digest(scene.transformer), scene.steered(adapter).detach()
    optimiser = torch.optim.SGD(adapter.trainable_parameters(scene.transformer), lr=1.0)
    for _ in range(2):
        optimiser.zero_grad()
        scene.steered(adapter).square().mean().backward()
        optimiser.step()
    assert all(parameter.grad is None for parameter in scene.transformer.parameters())
    assert all(parameter.grad.abs().max() > 0 for parameter in adapter.parameters())
    assert digest(scene.transformer) == weights
    assert (scene.steered(adapter) - before).abs().max() > 1e-4


@pytest.mark.parametrize("encoding", BRANCH_ENCODINGS)
def test_relative_encodings_ignore_the_world_frame(scene, encoding, randomise):
    adapter = CameraAdapter.for_transformer(scene.transformer, encoding=encoding, orientation=False, compression=2)
    randomise(adapter).attach(scene.transformer)
    moved = [camera.transformed(rigid(70, 35)) for camera in scene.cameras]
    torch.testing.assert_close(scene.steered(adapter, moved), scene.steered(adapter), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoding", ["ucpe", "sightline"])
def test_orientation_allows_only_turns_about_the_vertical(scene, encoding, randomise):
    adapter = CameraAdapter.for_transformer(scene.transformer, encoding=encoding, compression=2)
    randomise(adapter).attach(scene.transformer)
    still = scene.steered(adapter)
    turned = [camera.transformed(rigid(70)) for camera in scene.cameras]
    tilted = [camera.transformed(rigid(0, 20)) for camera in scene.cameras]
    torch.testing.assert_close(scene.steered(adapter, turned), still, atol=1e-5, rtol=1e-5)
    assert (scene.steered(adapter, tilted) - still).abs().max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
def test_lens_motion_and_order_of_clips_matter(scene, kind, randomise):
    adapter = kind.for_transformer(scene.transformer)
    randomise(adapter).attach(scene.transformer)
    output = scene.steered(adapter)
    first, second = scene.cameras
    changes = {
        "lens": [first.with_lens(type(first.lens)(xfov=150, xi=0.4)), second],
        "motion": [first.transformed(rigid()).zero_first_yaw()[list(range(8, -1, -1))], second],
        "order": [second, first],
    }
    for name, cameras in changes.items():
        assert (scene.steered(adapter, cameras) - output)[0].abs().max() > 1e-3, name
    torch.testing.assert_close(scene.steered(adapter, changes["lens"])[1], output[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoding", ["ucpe", "sightline", "raype", "rore"])
def test_batch_equals_single_clips_of_other_lens_models(scene, encoding, randomise, fisheye, other_model_lens):
    adapter = CameraAdapter.for_transformer(scene.transformer, encoding=encoding, compression=2)
    randomise(adapter).attach(scene.transformer)
    scene.transformer.double()
    scene.text = scene.text.double()
    cameras = [scene.cameras[0].with_lens(fisheye), scene.cameras[1].with_lens(other_model_lens)]
    scene.latents = torch.randn(2, 4, 3, 12, 12, dtype=torch.float64)
    condition = adapter.encode(cameras, height=96, width=96)
    assert condition.operator.valid is not None and not condition.operator.valid[0].all()
    assert condition.operator.valid[1].all()
    with adapter.camera(condition):
        both = scene.run()
    for index in range(2):
        with adapter.camera(adapter.encode(cameras[index], height=96, width=96)):
            alone = scene.transformer(
                scene.latents[[index]], scene.timestep[[index]], scene.text[[index]], return_dict=False
            )[0]
        torch.testing.assert_close(both[[index]], alone, atol=1e-9, rtol=1e-9)


def test_tokens_without_a_ray_are_no_keys(scene, randomise, fisheye):
    """What stands in the dark corners of a fisheye image reaches no token through the camera branch."""
    adapter = randomise(CameraAdapter.for_transformer(scene.transformer, compression=2))
    condition = adapter.encode(scene.cameras[0].with_lens(fisheye), height=96, width=96)
    dark = ~condition.operator.valid[0]
    assert 0 < dark.sum() < len(dark) / 2
    tokens = torch.randn(1, len(dark), 64)
    changed = tokens.clone()
    changed[0, dark] += torch.randn(int(dark.sum()), 64)
    output, other = (adapter.blocks[0](x, condition.operator, condition.features) for x in (tokens, changed))
    assert torch.equal(output[0, ~dark], other[0, ~dark])
    assert output.isfinite().all()
    adapter.blocks[0].mask_invalid = False
    output, other = (adapter.blocks[0](x, condition.operator, condition.features) for x in (tokens, changed))
    assert (output - other)[0, ~dark].abs().max() > 1e-3


@pytest.mark.parametrize("encoding", BRANCH_ENCODINGS)
def test_a_branch_gives_a_share_of_the_tokens_what_it_gives_all(scene, encoding, randomise):
    """Context parallelism: a process has some queries and gathers the keys of all."""
    adapter = randomise(CameraAdapter.for_transformer(scene.transformer, encoding=encoding, compression=2))
    condition = adapter.encode(scene.cameras[0], **scene.size)
    branch, tokens, part = adapter.blocks[0], torch.randn(1, 18, 64), slice(4, 15)
    whole = branch(tokens, condition.operator, condition.features, rays=condition.rays)
    rotated = None if branch.rotary_rays is None else partial(branch.rotary_rays, rays=condition.rays)
    inputs = tokens if branch.cam_encoder is None else tokens + branch.cam_encoder(condition.features)

    class Share:
        def __init__(self):
            self.part, self.gathered = part, iter((branch.k_proj, branch.v_proj))

        def gather(self, mine):
            projection = next(self.gathered)
            every = projection(inputs).unflatten(-1, (branch.heads, -1)).transpose(1, 2)
            if rotated is not None and projection is branch.k_proj:
                every = rotated(every, every)[1]
            torch.testing.assert_close(mine, every[..., part, :])
            return every

    share = branch(tokens[:, part], condition.operator, condition.features, None, Share(), condition.rays)
    torch.testing.assert_close(share, whole[:, part])


def test_call_without_or_with_a_wrong_camera_says_both_numbers(scene, make_cameras):
    adapter = CameraAdapter.for_transformer(scene.transformer, compression=2).attach(scene.transformer)
    with pytest.raises(ValueError, match="no camera is set"):
        scene.run()
    with pytest.raises(ValueError, match=r"batch of 1 but .* batch of 2"):
        scene.steered(adapter, scene.cameras[:1])
    with pytest.raises(ValueError, match=r"4 latent frames but .* 3"):
        scene.steered(adapter, make_cameras(frames=13))
    with (
        pytest.raises(ValueError, match=r"2 x 2 tokens a frame but .* 2 x 3"),
        adapter.camera(adapter.encode(scene.cameras, height=32, width=32)),
    ):
        scene.run()
    with pytest.raises(ValueError, match="no camera is set"):
        scene.run()
    adapter.detach()
    scene.run()


def test_encode_refuses_what_makes_no_tokens(scene, make_cameras):
    adapter = CameraAdapter.for_transformer(scene.transformer)
    with pytest.raises(ValueError, match=r"height must be a multiple of 16 pixels.*40"):
        adapter.encode(scene.cameras, height=40, width=48)
    with pytest.raises(ValueError, match="trajectory 0 has 9, trajectory 1 has 13"):
        adapter.encode([scene.cameras[0], make_cameras(13)[1]], **scene.size)
    with pytest.raises(ValueError, match=r"10 frames.*use 9 or 13"):
        adapter.encode(make_cameras(10), **scene.size)
    with pytest.raises(ValueError, match="no trajectory"):
        adapter.encode([], **scene.size)


def test_one_adapter_at_a_time(scene, make_wan):
    first = CameraAdapter.for_transformer(scene.transformer).attach(scene.transformer)
    with pytest.raises(ValueError, match="attached already"):
        ReCamMaster.for_transformer(scene.transformer).attach(scene.transformer)
    with pytest.raises(ValueError, match="attached already"):
        first.attach(make_wan())
    first.detach()
    with pytest.raises(ValueError, match="not attached"):
        first.detach()
    ReCamMaster.for_transformer(scene.transformer).attach(scene.transformer).detach()


def test_adapter_of_another_size_is_refused(make_wan):
    adapter = CameraAdapter.for_transformer(make_wan())
    with pytest.raises(ValueError, match="num_blocks 2, this one has 3"):
        adapter.attach(make_wan(num_layers=3))
    with pytest.raises(ValueError, match="width 64, this one has 128"):
        adapter.attach(make_wan(num_attention_heads=4))
    with pytest.raises(ValueError, match="no camera adapter knows Linear"):
        CameraAdapter.for_transformer(torch.nn.Linear(2, 2))


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match=r"encoding must be one of ucpe.*'rope'"):
        CameraAdapter(encoding="rope")
    with pytest.raises(ValueError, match="placement must be one of parallel, pre, post"):
        CameraAdapter(placement="after")
    with pytest.raises(ValueError, match="heads and head_dim together"):
        CameraAdapter(heads=2)
    with pytest.raises(ValueError, match="multiple of 8"):
        CameraAdapter(heads=2, head_dim=12)
    with pytest.raises(ValueError, match="use at most 4"):
        head_layout(32, 2, 8)


@pytest.mark.parametrize(
    ("width", "heads", "compression", "expected"),
    [
        (5120, 40, 8, (5, 128)),
        (3072, 24, 8, (3, 128)),
        (5120, 40, 12, (3, 136)),
        (32, 2, 4, (1, 8)),
        (192, 4, 8, (1, 24)),
    ],
)
def test_head_layout_of_other_widths(width, heads, compression, expected):
    assert head_layout(width, heads, compression) == expected


def test_user_chooses_heads(scene, randomise):
    adapter = CameraAdapter.for_transformer(scene.transformer, heads=3, head_dim=8)
    assert adapter.blocks[0].q_proj.weight.shape == (24, 64)
    randomise(adapter).attach(scene.transformer)
    assert scene.steered(adapter).isfinite().all()


def test_other_resolutions_and_lengths_through_one_adapter(scene, randomise, make_cameras):
    adapter = CameraAdapter.for_transformer(scene.transformer, compression=2)
    randomise(adapter).attach(scene.transformer)
    for frames, height, width in ((1, 16, 16), (5, 48, 32), (9, 32, 48)):
        latents = torch.randn(2, 4, 1 + (frames - 1) // 4, height // 8, width // 8)
        with adapter.camera(adapter.encode(make_cameras(frames), height=height, width=width)):
            output = scene.transformer(latents, scene.timestep, scene.text, return_dict=False)[0]
        assert output.shape == latents.shape and output.isfinite().all()


def test_copies_and_garbage(scene, randomise):
    adapter = CameraAdapter.for_transformer(scene.transformer, compression=2)
    randomise(adapter).attach(scene.transformer)
    twin = copy.deepcopy(adapter)
    output = scene.steered(adapter)
    adapter.detach()
    twin.attach(scene.transformer)
    assert torch.equal(scene.steered(twin), output)
    watched = weakref.ref(scene.transformer)
    scene.transformer = None
    del adapter, twin
    gc.collect()
    assert watched() is None


def test_static_camera_of_the_trajectory_type_alone(scene):
    adapter = CameraAdapter.for_transformer(scene.transformer)
    still = Trajectory(torch.eye(4).expand(9, 4, 4), scene.cameras[1].lens)
    condition = adapter.encode(still, **scene.size)
    assert len(condition) == 1 and condition.grid == (3, 2, 3)
    assert condition.features.shape == (1, 18, 3)
