import pytest
import torch
from diffusers import CogVideoXTransformer3DModel, LTXVideoTransformer3DModel

from ucpe.adapters import CameraAdapter, CameraCtrl, ReCamMaster, backbone_of

PLACEMENTS = ["parallel", "pre", "post"]


def tiny_cogvideox(**options):
    torch.manual_seed(0)
    return CogVideoXTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=32,
        in_channels=4,
        out_channels=4,
        time_embed_dim=8,
        text_embed_dim=8,
        num_layers=2,
        sample_width=6,
        sample_height=4,
        sample_frames=9,
        max_text_seq_length=5,
        use_rotary_positional_embeddings=True,
        **options,
    ).eval()


def tiny_ltx():
    torch.manual_seed(0)
    return LTXVideoTransformer3DModel(
        in_channels=4,
        out_channels=4,
        num_attention_heads=2,
        attention_head_dim=32,
        cross_attention_dim=64,
        num_layers=2,
        caption_channels=8,
    ).eval()


class CogVideoXCalls:
    size = {"height": 32, "width": 48}  # noqa: RUF012
    frames = 9

    def __init__(self):
        self.transformer = tiny_cogvideox()
        self.latents, self.text = torch.randn(2, 3, 4, 4, 6), torch.randn(2, 5, 8)

    def run(self):
        return self.transformer(self.latents, self.text, torch.tensor([3, 7]), return_dict=False)[0]


class LTXCalls:
    size = {"height": 64, "width": 96}  # noqa: RUF012
    frames = 17

    def __init__(self):
        self.transformer = tiny_ltx()
        self.latents, self.text = torch.randn(2, 18, 4), torch.randn(2, 5, 8)

    def run(self):
        return self.transformer(
            self.latents, self.text, torch.tensor([3, 7]), torch.ones(2, 5), 3, 2, 3, return_dict=False
        )[0]


@pytest.mark.parametrize("calls", [CogVideoXCalls, LTXCalls])
@pytest.mark.parametrize(
    ("kind", "options"),
    [(CameraAdapter, {"placement": p}) for p in PLACEMENTS] + [(ReCamMaster, {}), (CameraCtrl, {})],
    ids=[*PLACEMENTS, "recammaster", "cameractrl"],
)
def test_other_backbones(calls, kind, options, randomise, make_cameras):
    calls = calls()
    before = calls.run()
    cameras = make_cameras(calls.frames)
    adapter = kind.for_transformer(calls.transformer, **options).attach(calls.transformer)
    condition = adapter.encode(cameras, **calls.size)
    assert condition.grid == (3, 2, 3)
    with adapter.camera(condition):
        assert torch.equal(calls.run(), before)
        randomise(adapter, 0.1)
        steered = calls.run()
        assert (steered - before).abs().max() > 1e-3
    calls.transformer.enable_gradient_checkpointing()
    with adapter.camera(condition):
        loss = calls.run().square().sum()
    torch.testing.assert_close(loss, steered.square().sum())
    loss.backward()
    with (
        pytest.raises(ValueError, match=r"2 latent frames but .* 3"),
        adapter.camera(adapter.encode(make_cameras((calls.frames + 1) // 2), **calls.size)),
    ):
        calls.run()
    adapter.detach()
    assert torch.equal(calls.run(), before)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_cogvideox_text_stays_out_of_the_branch(placement, randomise, make_cameras):
    """The branch is a function of the video tokens: it sees as many as the video has, and text gets nothing added."""
    calls = CogVideoXCalls()
    adapter = CameraAdapter.for_transformer(calls.transformer, placement=placement, orientation=False)
    randomise(adapter, 0.1).attach(calls.transformer)
    seen, text = [], []
    adapter.blocks[0].register_forward_hook(lambda module, args, output: seen.append(args[0].shape))
    block = calls.transformer.transformer_blocks[0]
    block.attn1.register_forward_hook(lambda module, args, output: text.append(output[1]))
    with adapter.camera(adapter.encode(make_cameras(9), **calls.size)):
        calls.run()
    assert seen == [(2, 18, 64)]
    if placement == "parallel":
        adapter.detach()
        calls.run()
        assert torch.equal(text[0], text[1])


def test_post_on_cogvideox_equals_reference(randomise, make_cameras):
    """y + branch(y) between attention and feed-forward, written out for one block."""
    calls = CogVideoXCalls()
    adapter = CameraAdapter.for_transformer(calls.transformer, placement="post")
    randomise(adapter, 0.1).attach(calls.transformer)
    block = calls.transformer.transformer_blocks[0]
    inputs, outputs = [], []
    handles = [
        block.register_forward_pre_hook(lambda module, args, kwargs: inputs.append(kwargs), with_kwargs=True),
        block.register_forward_hook(lambda module, args, output: outputs.append(output)),
    ]
    condition = adapter.encode(make_cameras(9), **calls.size)
    with adapter.camera(condition):
        calls.run()
    for handle in handles:
        handle.remove()
    adapter.detach()
    x, text, temb = (inputs[0][name] for name in ("hidden_states", "encoder_hidden_states", "temb"))
    normed, normed_text, gate, gate_text = block.norm1(x, text, temb)
    attended, attended_text = block.attn1(hidden_states=normed, encoder_hidden_states=normed_text)
    x, text = x + gate * attended, text + gate_text * attended_text
    x = x + adapter.blocks[0](x, condition.operator, condition.features)
    normed, normed_text, gate, gate_text = block.norm2(x, text, temb)
    fed = block.ff(torch.cat([normed_text, normed], 1))
    torch.testing.assert_close(outputs[0][0], x + gate * fed[:, 5:], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outputs[0][1], text + gate_text * fed[:, :5], atol=1e-5, rtol=1e-5)


def test_wan22_with_a_timestep_per_token(scene, make_wan, randomise):
    """Equal timesteps given once or per token agree, and the stride of 48-channel latents is 16."""
    scene.transformer = make_wan(in_channels=48, out_channels=48)
    scene.latents = torch.randn(2, 48, 3, 4, 6)
    scene.size = {"height": 64, "width": 96}
    adapter = randomise(CameraAdapter.for_transformer(scene.transformer), 0.1).attach(scene.transformer)
    assert adapter.config.spatial_stride == 16
    once = scene.steered(adapter)
    scene.timestep = scene.timestep[:, None].expand(2, 18)
    torch.testing.assert_close(scene.steered(adapter), once, atol=1e-5, rtol=1e-5)


def test_wan_image_to_video(scene, make_wan, randomise):
    """36 input channels and image tokens in cross-attention; relative rays alone."""
    scene.transformer = make_wan(in_channels=12, image_dim=16, added_kv_proj_dim=64)
    scene.latents, scene.text = torch.randn(2, 12, 3, 4, 6), torch.randn(2, 512, 8)
    adapter = randomise(CameraAdapter.for_transformer(scene.transformer, orientation=False), 0.1)
    image = torch.randn(2, 7, 16)
    before = scene.run(encoder_hidden_states_image=image)
    adapter.attach(scene.transformer)
    with adapter.camera(adapter.encode(scene.cameras, **scene.size)):
        assert (scene.run(encoder_hidden_states_image=image) - before).abs().max() > 1e-3


def test_patches_in_time(make_cameras):
    """CogVideoX 1.5: a token of two latent frames gets the camera of the first."""
    transformer = tiny_cogvideox(patch_size_t=2)
    adapter = CameraAdapter.for_transformer(transformer)
    camera = make_cameras(13)[0]
    condition = adapter.encode(camera, height=32, width=48)
    assert condition.grid == (2, 2, 3)
    kept = adapter.encode(camera[torch.tensor([0, 1, 2, 3, 8])], height=32, width=48)
    assert torch.equal(condition.features[0, :6], kept.features[0, :6])
    assert CameraCtrl.for_transformer(transformer).encode(camera, height=32, width=48).features.shape[2] == 6 * 8


def test_a_subclass_and_a_compiled_model_are_known(make_wan):
    transformer = make_wan()
    transformer.__class__ = type("MyWan", (type(transformer),), {})
    assert backbone_of(transformer).width == 64
    assert backbone_of(torch.compile(transformer)).transformer is transformer
