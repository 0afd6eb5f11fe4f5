"""The one-pass kernel and the composed formulation against the straightforward one; gradients; compilation."""

import threading

import pytest
import torch

from ucpe.encodings import Operator, camera_attention, camera_operator
from ucpe.encodings.application import _compose, apply_blocks
from ucpe.lenses import UCM

TRANSFORMS = ["query", "key", "value", "output"]


def blocks_and_sign(operator: Operator, transform: str) -> tuple[torch.Tensor, float]:
    return {
        "query": (operator.blocks.mT, -1.0),
        "key": (operator.inverse, -1.0),
        "value": (operator.inverse, -1.0),
        "output": (operator.blocks, 1.0),
    }[transform]


def make_operator(encoding: str, c2w: torch.Tensor, rope: bool = True, dtype: torch.dtype = torch.float64) -> Operator:
    return camera_operator(encoding, UCM(xfov=200, xi=2.3), c2w, 4, 4, 16, rope=rope, dtype=dtype)


@pytest.mark.parametrize("rope", [True, False])
@pytest.mark.parametrize("encoding", ["ucpe", "prope"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_against_split_einsum_concatenate(encoding, transform, rope, poses, straightforward):
    operator = make_operator(encoding, poses(2, 2), rope)
    x = torch.randn(2, 3, 32, 16, dtype=torch.float64)
    expected = straightforward(x, operator, *blocks_and_sign(operator, transform))
    torch.testing.assert_close(getattr(operator, transform)(x), expected, atol=1e-12, rtol=0)
    blocks, sign = blocks_and_sign(operator, transform)
    composed = _compose(x, blocks, operator.cosine, operator.sine, operator.tokens_per_block, False, sign > 0)
    torch.testing.assert_close(composed, expected, atol=1e-12, rtol=0)


LAYOUTS = {
    "contiguous": lambda x: x.clone(),
    "heads inside": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "channels strided": lambda x: torch.stack([x, x], dim=-1)[..., 0],
    "slice": lambda x: torch.cat([x, x], dim=2)[:, :, : x.shape[2]],
    "offset": lambda x: torch.cat([x, x], dim=-1)[..., x.shape[-1] :],
    "expanded": lambda x: x[:1].expand_as(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout(layout, poses, straightforward):
    operator = make_operator("ucpe", poses(2, 2))
    x = LAYOUTS[layout](torch.randn(2, 3, 32, 16, dtype=torch.float64))
    kept = x.clone()
    for transform in TRANSFORMS:
        expected = straightforward(x, operator, *blocks_and_sign(operator, transform))
        torch.testing.assert_close(getattr(operator, transform)(x), expected, atol=1e-12, rtol=0)
    assert torch.equal(x, kept)


def test_leading_dimensions_broadcast(poses):
    shared, batched = make_operator("ucpe", poses(2)), make_operator("ucpe", poses(3, 2))
    x = torch.randn(2, 3, 1, 32, 16, dtype=torch.float64)
    torch.testing.assert_close(shared.query(x)[1, 2], shared.query(x[1, 2]))
    torch.testing.assert_close(batched.query(x)[1, 2], batched[2].query(x[1, 2]))
    one = torch.randn(1, 1, 32, 16, dtype=torch.float64)
    assert batched.query(one).shape == (3, 1, 32, 16)
    torch.testing.assert_close(batched.query(one)[2], batched[2].query(one[0]))


def test_many_threads_give_the_same(poses, straightforward):
    operator = camera_operator("ucpe", UCM(xfov=120, xi=0.5), poses(3), 40, 40, 64)
    x = torch.randn(1, 8, 4800, 64)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        found = operator.key(x)
    finally:
        torch.set_num_threads(threads)
    expected = straightforward(x, operator, *blocks_and_sign(operator, "key"))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_calls_from_several_threads(poses):
    operator = make_operator("ucpe", poses(2))
    inputs = torch.randn(6, 1, 32, 16, dtype=torch.float64)
    found: dict[int, torch.Tensor] = {}
    workers = [threading.Thread(target=lambda i=i: found.update({i: operator.key(inputs[i])})) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for i, x in enumerate(inputs):
        assert torch.equal(found[i], operator.key(x))


@pytest.mark.parametrize("rope", [True, False])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_gradcheck(transform, rope, poses):
    operator = camera_operator("ucpe", UCM(xfov=200, xi=2.3), poses(1), 2, 3, 8, rope=rope, dtype=torch.float64)
    x = torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(getattr(operator, transform), x)
    assert torch.autograd.gradgradcheck(getattr(operator, transform), x)


@pytest.mark.parametrize("encoding", ["ucpe", "gta", "prope", "cape"])
def test_gradcheck_of_attention_in_queries_and_cameras(encoding, poses):
    def attend(query, key, value, c2w, xi):
        lens = UCM(xfov=200, xi=xi)
        operator = camera_operator(encoding, lens, c2w, 2, 2, 8, dtype=torch.float64)
        return camera_attention(query, key, value, operator)

    query, key, value = torch.randn(3, 1, 8, 8, dtype=torch.float64).requires_grad_().unbind(0)
    xi = torch.tensor(2.3, dtype=torch.float64, requires_grad=True)
    try:
        torch.set_default_dtype(torch.float64)
        assert torch.autograd.gradcheck(attend, (query, key, value, poses(2).requires_grad_(), xi), fast_mode=True)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", ["ucm[200, 2.3]", "equirectangular", "omni_stereo", "equidistant[220]"])
@pytest.mark.parametrize("still", [True, False])
def test_camera_gradients_are_finite(lenses, name, still, poses):
    c2w = (poses(1).expand(3, 4, 4).clone() if still else poses(3)).requires_grad_()
    operator = camera_operator("ucpe", lenses[name], c2w, 5, 5, 8)
    query, key, value = torch.randn(3, 1, 75, 8)
    (gradient,) = torch.autograd.grad(camera_attention(query, key, value, operator).square().sum(), c2w)
    assert torch.isfinite(gradient).all()
    assert gradient.abs().max() > 0


def test_composed_and_one_pass_gradients_agree(poses):
    operator = make_operator("ucpe", poses(2))
    x = torch.randn(1, 32, 16, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(1, 32, 16, dtype=torch.float64)
    composed = _compose(x, operator.blocks, operator.cosine, operator.sine, 1, True, False)
    gradients = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (operator.query(x), composed)]
    torch.testing.assert_close(*gradients)


def test_lower_precision_is_computed_in_float32(poses):
    operator = make_operator("ucpe", poses(2, distance=9), dtype=torch.float32)
    x = torch.randn(1, 32, 16).to(torch.bfloat16)
    assert torch.equal(operator.key(x), operator.key(x.float()).to(torch.bfloat16))


def test_no_copy_of_the_input_is_made(poses):
    """Peak memory is the output alone."""
    from torch.utils._python_dispatch import TorchDispatchMode

    operator = make_operator("ucpe", poses(2))
    x = torch.randn(1, 3, 32, 16, dtype=torch.float64)
    tensors = (x, operator.blocks, operator.cosine, operator.sine)
    made = {tensor.untyped_storage().data_ptr(): 0 for tensor in tensors}

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            made.setdefault(result.untyped_storage().data_ptr(), result.untyped_storage().nbytes())
            return result

    with Count():
        output = operator.query(x)
    assert sum(made.values()) == output.untyped_storage().nbytes()


def test_compiles_in_one_graph(poses):
    operator = make_operator("ucpe", poses(2), dtype=torch.float32)

    def attend(x):
        return operator.output(operator.query(x) + operator.key(x))

    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 32, 16, requires_grad=True)
    torch.testing.assert_close(compiled(x), attend(x), atol=1e-5, rtol=1e-5)
    weight = torch.randn(2, 3, 32, 16)
    gradients = [torch.autograd.grad((f(x) * weight).sum(), x)[0] for f in (compiled, attend)]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-5)


def test_attention_compiles_in_one_graph(poses):
    operator = make_operator("ucpe", poses(2), dtype=torch.float32)
    compiled = torch.compile(camera_attention, fullgraph=True, backend="aot_eager")
    query, key, value = torch.randn(3, 2, 3, 32, 16)
    expected = camera_attention(query, key, value, operator)
    torch.testing.assert_close(compiled(query, key, value, operator), expected, atol=1e-5, rtol=1e-5)


def test_shapes_follow_on_the_meta_device(poses):
    operator = make_operator("ucpe", poses(2), dtype=torch.float32).to("meta")
    x = torch.empty(2, 3, 32, 16, device="meta")
    assert camera_attention(x, x, x, operator).shape == x.shape


def test_empty_batch(poses):
    operator = make_operator("ucpe", poses(2), dtype=torch.float32)
    assert apply_blocks(torch.empty(0, 3, 32, 16), operator.blocks, None, None).shape == (0, 3, 32, 16)
