"""Attention: masks, tokens without rays, precision at large translations, diffusers' dispatcher."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from ucpe.encodings import camera_attention, camera_operator
from ucpe.lenses import UCM, Pinhole

FISHEYE = UCM(xfov=200, xi=2.3)


@pytest.fixture
def tensors():
    return torch.randn(3, 2, 2, 32, 16, generator=torch.Generator().manual_seed(0))


def test_one_camera_at_rest_is_plain_attention_without_rope(tensors):
    operator = camera_operator("gta", Pinhole(xfov=90), torch.eye(4)[None], 4, 8, 16, rope=False)
    torch.testing.assert_close(camera_attention(*tensors, operator), scaled_dot_product_attention(*tensors))


@pytest.mark.parametrize("encoding", ["ucpe", "gta", "prope", "cape"])
def test_keys_without_a_ray_take_no_part(encoding, tensors, poses):
    query, key, value = tensors
    operator = camera_operator(encoding, FISHEYE, poses(2), 4, 4, 16)
    blind = ~operator.valid
    assert blind.any()
    changed_key, changed_value = key.clone(), value.clone()
    changed_key[..., blind, :] += 5
    changed_value[..., blind, :] -= 7
    output = camera_attention(query, key, value, operator)
    torch.testing.assert_close(camera_attention(query, changed_key, changed_value, operator), output)
    open_output = camera_attention(query, key, value, operator, mask_invalid=False)
    assert (open_output - output).abs().max() > 0.01
    changed = camera_attention(query, changed_key, changed_value, operator, mask_invalid=False)
    assert (changed - open_output).abs().max() > 0.1


def test_boolean_and_float_masks_agree(tensors, poses, dense, dense_attention):
    operator = camera_operator("ucpe", FISHEYE, poses(2), 4, 4, 16, dtype=torch.float64)
    query, key, value = tensors.double()
    keep = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(1)) < 0.5
    keep[..., 0] = True
    keep[..., 5] = True
    boolean = camera_attention(query, key, value, operator, attention_mask=keep)
    additive = torch.zeros(keep.shape, dtype=torch.float64).masked_fill(~keep, -torch.inf)
    torch.testing.assert_close(camera_attention(query, key, value, operator, attention_mask=additive), boolean)
    matrix, valid = dense("ucpe", FISHEYE, poses(2), 4, 4, 16)
    expected = dense_attention(query, key, value, matrix, matrix, keep & valid)
    torch.testing.assert_close(boolean, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("kind", ["boolean", "additive"])
@pytest.mark.parametrize("dispatched", [False, True], ids=["torch", "diffusers"])
def test_queries_without_any_key_give_zero_and_finite_gradients(kind, dispatched, tensors, poses):
    operator = camera_operator("ucpe", FISHEYE, poses(2), 4, 4, 16)
    query, key, value = (t.clone().requires_grad_() for t in tensors)
    keep = torch.ones(2, 1, 32, 32, dtype=torch.bool)
    keep[0, :, 3] = False
    keep[1, :, 7] = ~operator.valid
    mask = keep if kind == "boolean" else torch.zeros(keep.shape).masked_fill(~keep, -torch.inf)
    output = camera_attention(query, key, value, operator, attention_mask=mask, diffusers=dispatched)
    assert output[0, :, 3].abs().max() == 0
    assert output[1, :, 7].abs().max() == 0
    assert torch.isfinite(output).all()
    for gradient in torch.autograd.grad(output.square().sum(), (query, key, value)):
        assert torch.isfinite(gradient).all()


def test_no_mask_reaches_attention_when_every_token_has_a_ray(tensors, poses, monkeypatch):
    seen = []

    def spy(query, key, value, attn_mask=None):
        seen.append(attn_mask)
        return scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)

    monkeypatch.setattr("ucpe.encodings.attention.scaled_dot_product_attention", spy)
    camera_attention(*tensors, camera_operator("ucpe", Pinhole(xfov=90), poses(2), 4, 4, 16))
    camera_attention(*tensors, camera_operator("ucpe", FISHEYE, poses(2), 4, 4, 16))
    assert seen[0] is None
    assert seen[1] is not None


def test_diffusers_dispatcher(tensors, poses, monkeypatch):
    from diffusers.models import attention_dispatch

    calls = []
    original = attention_dispatch.dispatch_attention_fn

    def spy(query, key, value, **options):
        calls.append((tuple(query.shape), options["backend"]))
        return original(query, key, value, **options)

    monkeypatch.setattr(attention_dispatch, "dispatch_attention_fn", spy)
    for lens in (Pinhole(xfov=90), FISHEYE):
        operator = camera_operator("ucpe", lens, poses(2), 4, 4, 16)
        dispatched = camera_attention(*tensors, operator, diffusers=True, backend="native")
        torch.testing.assert_close(dispatched, camera_attention(*tensors, operator))
    assert calls == [((2, 32, 2, 16), "native")] * 2
    several = camera_attention(*tensors[:, :, None].expand(3, 2, 3, 2, 32, 16), operator, diffusers=True)
    torch.testing.assert_close(several[:, 1], camera_attention(*tensors, operator))


@pytest.mark.filterwarnings("ignore:a camera is")
@pytest.mark.parametrize("distance", [1, 10, 100])
@pytest.mark.parametrize("encoding", ["ucpe", "gta", "prope", "cape"])
def test_bfloat16_tokens_with_geometry_in_float32(encoding, distance, poses, tolerances, error):
    c2w = poses(5, distance=distance)
    tokens = torch.randn(3, 1, 1, 240, 64, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    operator = camera_operator(encoding, UCM(xfov=120, xi=0.6), c2w, 6, 8, 64)
    precise = camera_operator(encoding, UCM(xfov=120, xi=0.6), c2w, 6, 8, 64, dtype=torch.float64)
    expected = camera_attention(*tokens.double(), precise)
    name = f"bf16 at {distance} unit{'s' if distance > 1 else ''}"
    assert error(camera_attention(*tokens, operator), expected) < tolerances[name][torch.bfloat16]
    assert error(camera_attention(*tokens.float(), operator), expected) < 1e-5


def test_autocast_leaves_geometry_in_float32(tensors, poses, error):
    c2w = poses(2, distance=9)
    operator = camera_operator("ucpe", FISHEYE, c2w, 4, 4, 16)
    tokens = tensors.to(torch.bfloat16)
    expected = camera_attention(*tokens, operator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = camera_attention(*tokens, operator)
        moved = operator.key(tokens[1])
    assert error(found, expected) < 1e-2
    assert torch.equal(moved, operator.key(tokens[1]))
