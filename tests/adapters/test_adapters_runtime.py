"""Adapters under what people run them with: guidance, checkpointing, compilation, low precision, offload, LoRA."""

import pytest
import torch
from accelerate import cpu_offload
from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline
from torch._dynamo.testing import CompileCounter

from ucpe.adapters import CameraAdapter, CameraCtrl, ReCamMaster

KINDS = [CameraAdapter, ReCamMaster, CameraCtrl]


@pytest.fixture
def attached(scene, randomise):
    adapter = randomise(CameraAdapter.for_transformer(scene.transformer, compression=2))
    return adapter.attach(scene.transformer)


def gradients(adapter, loss):
    parameters = [parameter for parameter in adapter.parameters() if parameter.requires_grad]
    return torch.autograd.grad(loss, parameters)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("placement", ["parallel", "pre", "post"])
def test_checkpointed_backward_sees_the_camera_of_its_own_forward(scene, randomise, placement, reentrant):
    """Two forwards with different cameras, then both backwards after the contexts are closed."""
    adapter = CameraAdapter.for_transformer(scene.transformer, compression=2, placement=placement)
    randomise(adapter).attach(scene.transformer)
    adapter.set_trainable(scene.transformer)
    if reentrant:
        scene.latents.requires_grad_(True)  # reentrant checkpoints need a gradient at their inputs
    both = (scene.cameras, scene.cameras[::-1])
    expected = [gradients(adapter, scene.steered(adapter, cameras).square().sum()) for cameras in both]

    def checkpoint(block, *args):
        return torch.utils.checkpoint.checkpoint(block, *args, use_reentrant=True)

    scene.transformer.enable_gradient_checkpointing(checkpoint if reentrant else None)
    chosen = scene.transformer._gradient_checkpointing_func
    losses = [scene.steered(adapter, cameras).square().sum() for cameras in both]
    assert scene.transformer._gradient_checkpointing_func is chosen
    for loss, reference in zip(losses, expected):
        if reentrant:
            adapter.zero_grad()
            loss.backward()
            found = [parameter.grad for parameter in adapter.parameters()]
        else:
            found = gradients(adapter, loss)
        for one, other in zip(found, reference):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert (expected[0][0] - expected[1][0]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", [ReCamMaster, CameraCtrl])
def test_baselines_under_checkpointing(scene, randomise, kind):
    adapter = randomise(kind.for_transformer(scene.transformer))
    adapter.attach(scene.transformer)
    expected = gradients(adapter, scene.steered(adapter).square().sum())
    scene.transformer.enable_gradient_checkpointing()
    for one, other in zip(gradients(adapter, scene.steered(adapter).square().sum()), expected):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_failed_call_leaves_no_trace(scene, attached):
    scene.transformer.enable_gradient_checkpointing()
    chosen = scene.transformer._gradient_checkpointing_func
    output = scene.steered(attached)
    with pytest.raises(RuntimeError), attached.camera(attached.encode(scene.cameras, **scene.size)):
        scene.transformer(scene.latents, scene.timestep, scene.text[..., :3])
    assert scene.transformer._gradient_checkpointing_func is chosen
    assert attached._running is None and attached._active is None
    torch.testing.assert_close(scene.steered(attached), output)


def test_block_called_on_its_own_is_refused(scene, attached):
    with (
        pytest.raises(ValueError, match="outside a call of its transformer"),
        attached.camera(attached.encode(scene.cameras, **scene.size)),
    ):
        scene.transformer.blocks[0].attn1(torch.randn(2, 18, 64))


def test_guidance_in_one_pass_equals_two(scene, attached):
    condition = attached.encode(scene.cameras, **scene.size)
    empty = torch.zeros_like(scene.text)
    with attached.camera(condition):
        with_text = scene.run()
        without = scene.transformer(scene.latents, scene.timestep, empty, return_dict=False)[0]
    with attached.camera(condition.repeat(2)):
        both = scene.transformer(
            scene.latents.repeat(2, 1, 1, 1, 1),
            scene.timestep.repeat(2),
            torch.cat([empty, scene.text]),
            return_dict=False,
        )[0]
    torch.testing.assert_close(both, torch.cat([without, with_text]), atol=1e-5, rtol=1e-5)


def test_condition_of_some_clips(scene, attached):
    condition = attached.encode(scene.cameras, **scene.size)
    alone = attached.encode(scene.cameras[1], **scene.size)
    for picked in (condition[1], condition[1:], condition[[1]], condition[torch.tensor([False, True])]):
        assert len(picked) == 1 and torch.equal(picked.features, alone.features)
        assert torch.equal(picked.operator.blocks, alone.operator.blocks)
    assert torch.equal(condition.repeat(3).features, condition.features.repeat(3, 1, 1))


def test_nested_cameras_restore_the_outer_one(scene, attached):
    outer, inner = (attached.encode(cameras, **scene.size) for cameras in (scene.cameras, scene.cameras[::-1]))
    with attached.camera(outer):
        expected = scene.run()
        with attached.camera(inner):
            assert not torch.equal(scene.run(), expected)
        assert torch.equal(scene.run(), expected)


@pytest.mark.parametrize("placement", ["parallel", "pre", "post"])
def test_compiled_blocks_share_one_graph_for_all_cameras(scene, randomise, placement):
    adapter = CameraAdapter.for_transformer(scene.transformer, compression=2, placement=placement)
    randomise(adapter, 0.1).attach(scene.transformer)
    both = (scene.cameras, scene.cameras[::-1])
    with torch.no_grad():
        expected = [scene.steered(adapter, cameras) for cameras in both]
        torch._dynamo.reset()
        counter = CompileCounter()
        scene.transformer.compile_repeated_blocks(backend=counter, fullgraph=True)
        for cameras, reference in zip(both, expected):
            torch.testing.assert_close(scene.steered(adapter, cameras), reference, atol=1e-4, rtol=1e-4)
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_compiled_transformer_is_one_graph_for_all_cameras(scene, attached):
    both = (scene.cameras, scene.cameras[::-1])
    with torch.no_grad():
        expected = [scene.steered(attached, cameras) for cameras in both]
        torch._dynamo.reset()
        counter = CompileCounter()
        scene.transformer = torch.compile(scene.transformer, backend=counter, fullgraph=True)
        for cameras, reference in zip(both, expected):
            torch.testing.assert_close(scene.steered(attached, cameras), reference, atol=1e-4, rtol=1e-4)
    assert counter.frame_count == 1
    torch._dynamo.reset()


@pytest.mark.parametrize("adapter_dtype", [torch.float32, torch.bfloat16])
def test_low_precision(scene, attached, adapter_dtype):
    """bf16 geometry stays in float32: far-off worlds cost nothing, and the result is near the float32 one."""
    exact = scene.steered(attached)
    far = torch.eye(4, dtype=torch.float64)
    far[:3, 3] = 1000
    moved = [camera.transformed(far) for camera in scene.cameras]
    scene.transformer.to(torch.bfloat16)
    attached.to(adapter_dtype)
    scene.latents, scene.text = scene.latents.bfloat16(), scene.text.bfloat16()
    output = scene.steered(attached)
    assert output.dtype == torch.bfloat16
    assert (output - exact).norm() < 0.03 * exact.norm()
    assert (scene.steered(attached, moved) - exact).norm() < 0.03 * exact.norm()


def test_autocast_trains_float32_weights(scene, attached):
    attached.set_trainable(scene.transformer)
    with torch.autocast("cpu", torch.bfloat16):
        loss = scene.steered(attached).float().square().mean()
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in gradients(attached, loss))


def test_offloaded_transformer(scene, attached):
    expected = scene.steered(attached)
    cpu_offload(scene.transformer, execution_device=torch.device("cpu"))
    assert next(scene.transformer.parameters()).is_meta
    with torch.no_grad():
        assert torch.equal(scene.steered(attached), expected)


def test_weights_and_condition_follow_the_tokens(scene, attached):
    """No second device at hand: the meta device shows where everything goes."""
    condition = attached.encode(scene.cameras, **scene.size)
    scene.transformer.to("meta")
    with torch.no_grad(), attached.camera(condition):
        output = scene.transformer(*(x.to("meta") for x in (scene.latents, scene.timestep, scene.text))).sample
        moved = attached._active.condition
    assert output.is_meta and next(attached.parameters()).is_meta
    assert moved.features.is_meta and moved.operator.blocks.is_meta
    assert condition.features.device.type == "cpu"


def test_lora_on_the_base_at_the_same_time(scene, attached, tmp_path):
    peft = pytest.importorskip("peft")
    without = scene.steered(attached)
    config = peft.LoraConfig(r=2, target_modules=["to_q", "to_v"], init_lora_weights=False)
    scene.transformer.add_adapter(config)
    with_both = scene.steered(attached)
    assert (with_both - without).abs().max() > 1e-3
    assert not any("lora" in name for name, _ in attached.named_parameters())
    scene.transformer.disable_adapters()
    torch.testing.assert_close(scene.steered(attached), without)
    scene.transformer.enable_adapters()
    attached.detach()
    scene.run()


def test_attention_backend_of_the_user_reaches_the_branch(scene, attached, monkeypatch):
    used = []
    from diffusers.models import attention_dispatch

    dispatch = attention_dispatch.dispatch_attention_fn
    monkeypatch.setattr(
        attention_dispatch, "dispatch_attention_fn", lambda *a, **k: used.append(k["backend"]) or dispatch(*a, **k)
    )
    scene.transformer.set_attention_backend("_native_math")
    scene.steered(attached)
    assert [backend.value for backend in used] == ["_native_math", "_native_math"]


def test_wan_pipeline_runs_with_guidance(scene, attached):
    """diffusers' own pipeline, unchanged, inside a camera context: two passes a step."""
    torch.manual_seed(0)
    vae = AutoencoderKLWan(
        base_dim=3,
        z_dim=4,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
        latents_mean=[0.0] * 4,
        latents_std=[1.0] * 4,
    )
    pipe = WanPipeline(
        tokenizer=None,
        text_encoder=None,
        transformer=scene.transformer,
        vae=vae,
        scheduler=FlowMatchEulerDiscreteScheduler(),
    )
    pipe.set_progress_bar_config(disable=True)

    def generate(cameras):
        with attached.camera(attached.encode(cameras, **scene.size)):
            return pipe(
                prompt_embeds=scene.text[:1],
                negative_prompt_embeds=torch.zeros(1, 5, 8),
                num_frames=9,
                num_inference_steps=2,
                guidance_scale=3.0,
                generator=torch.Generator().manual_seed(0),
                output_type="latent",
                **scene.size,
            ).frames

    first, again, other = (generate([scene.cameras[i]]) for i in (0, 0, 1))
    assert first.shape == (1, 4, 3, 4, 6)
    assert torch.equal(first, again) and (first - other).abs().max() > 1e-3
