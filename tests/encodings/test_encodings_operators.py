"""Operators against their dense definition, their invariance and identities, and the ways of slicing them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from ucpe.encodings import ENCODINGS, Operator, camera_attention, camera_operator, plucker_rays, raw_parameters
from ucpe.encodings.operators import PAIRWISE
from ucpe.lenses import EUCM, UCM, Equidistant, Equirectangular, Pinhole

NAMES = [name for name in ENCODINGS if name not in PAIRWISE]
HEIGHT, WIDTH, HEAD_DIM = 3, 4, 16


def random_qkv(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(3, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def moved_world(c2w: torch.Tensor, seed: int = 3, distance: float = 5.0) -> torch.Tensor:
    world = torch.eye(4, dtype=torch.float64)
    world[:3, :3] = torch.as_tensor(Rotation.random(random_state=seed).as_matrix())
    world[:3, 3] = distance * torch.tensor([0.3, -0.7, 0.6], dtype=torch.float64)
    return world @ c2w


class TestDenseDefinition:
    @pytest.mark.parametrize("encoding", NAMES)
    def test_every_lens(self, encoding, lens, poses, dense, dense_attention, tolerances, error):
        self.check(encoding, lens, poses(2), True, dense, dense_attention, tolerances, error)

    @pytest.mark.parametrize("encoding", NAMES)
    def test_without_rope(self, encoding, poses, dense, dense_attention, tolerances, error):
        self.check(encoding, UCM(xfov=200, xi=2.3), poses(2), False, dense, dense_attention, tolerances, error)

    def check(self, encoding, lens, c2w, rope, dense, dense_attention, tolerances, error):
        query, key, value = random_qkv(2, 2 * HEIGHT * WIDTH, HEAD_DIM)
        operator = camera_operator(encoding, lens, c2w, HEIGHT, WIDTH, HEAD_DIM, rope=rope, dtype=torch.float64)
        matrix, valid = dense(encoding, lens, c2w, HEIGHT, WIDTH, HEAD_DIM, rope)
        expected = dense_attention(query, key, value, matrix, matrix, valid[None], encoding != "cape")
        assert error(camera_attention(query, key, value, operator), expected) < tolerances["dense"][torch.float64]

    def test_transport_frame(self, lens, poses, dense, dense_attention, tolerances, error):
        c2w = poses(2)
        query, key, value = random_qkv(1, 2 * HEIGHT * WIDTH, HEAD_DIM)
        options = {"frame": "transport", "dtype": torch.float64}
        operator = camera_operator("ucpe", lens, c2w, HEIGHT, WIDTH, HEAD_DIM, **options)
        matrix, valid = dense("ucpe", lens, c2w, HEIGHT, WIDTH, HEAD_DIM, frame="transport")
        expected = dense_attention(query, key, value, matrix, matrix, valid[None])
        assert error(camera_attention(query, key, value, operator), expected) < tolerances["dense"][torch.float64]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("encoding", NAMES)
    def test_lower_precision(self, encoding, dtype, poses, dense, dense_attention, tolerances, error):
        lens, c2w = UCM(xfov=180, xi=2.0), poses(3)
        query, key, value = random_qkv(2, 3 * HEIGHT * WIDTH, HEAD_DIM, dtype=dtype)
        operator = camera_operator(encoding, lens, c2w, HEIGHT, WIDTH, HEAD_DIM)
        found = camera_attention(query, key, value, operator)
        matrix, valid = dense(encoding, lens, c2w, HEIGHT, WIDTH, HEAD_DIM)
        doubles = (query.double(), key.double(), value.double())
        expected = dense_attention(*doubles, matrix, matrix, valid[None], encoding != "cape")
        assert found.dtype == dtype
        assert error(found, expected) < tolerances["dense"][dtype]

    @pytest.mark.parametrize("encoding", NAMES)
    def test_cross_attention_between_views_of_different_lenses(
        self, encoding, poses, dense, dense_attention, tolerances, error
    ):
        c2w = poses(4)
        views = [(Pinhole(xfov=80), c2w[:1]), (UCM(xfov=200, xi=2.3), c2w[1:])]
        operators, matrices, masks = [], [], []
        for lens, view in views:
            options = {"anchor": c2w[0], "dtype": torch.float64}
            operators.append(camera_operator(encoding, lens, view, 4, 4, HEAD_DIM, **options))
            matrix, valid = dense(encoding, lens, view, 4, 4, HEAD_DIM)
            matrices.append(matrix)
            masks.append(valid)
        assert not masks[1].all()
        query = random_qkv(2, 16, HEAD_DIM)[0]
        _, key, value = random_qkv(2, 48, HEAD_DIM)
        found = camera_attention(query, key, value, operators[0], operators[1])
        expected = dense_attention(query, key, value, *matrices, masks[1][None], encoding != "cape")
        assert error(found, expected) < tolerances["dense"][torch.float64]


class TestWorldFrame:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("encoding", NAMES)
    def test_relative_encodings_do_not_depend_on_it(self, encoding, dtype, lens, poses, tolerances, error):
        c2w = poses(3)
        query, key, value = random_qkv(2, 3 * HEIGHT * WIDTH, HEAD_DIM, dtype=dtype)
        kept_in = torch.float64 if dtype == torch.float64 else torch.float32
        outputs = [
            camera_attention(
                query, key, value, camera_operator(encoding, lens, view, HEIGHT, WIDTH, HEAD_DIM, dtype=kept_in)
            )
            for view in (c2w, moved_world(c2w))
        ]
        assert error(*outputs) < tolerances["world frame"][dtype]

    @pytest.mark.parametrize("encoding", NAMES)
    def test_nor_without_the_anchor(self, encoding, poses, tolerances, error):
        lens, c2w = UCM(xfov=130, xi=0.7), poses(3)
        query, key, value = random_qkv(2, 3 * HEIGHT * WIDTH, HEAD_DIM)
        outputs = []
        for view in (c2w, moved_world(c2w)):
            options = {"anchor": False, "dtype": torch.float64}
            operator = camera_operator(encoding, lens, view, HEIGHT, WIDTH, HEAD_DIM, **options)
            outputs.append(camera_attention(query, key, value, operator))
        assert error(*outputs) < tolerances["world frame"][torch.float64]

    @settings(max_examples=8)
    @given(seed=st.integers(0, 10**6), distance=st.floats(0, 1e4))
    def test_any_rigid_change(self, seed, distance):
        lens = UCM(xfov=190, xi=2.0)
        c2w = torch.eye(4, dtype=torch.float64).repeat(2, 1, 1)
        c2w[1, 0, 3] = 0.5
        query, key, value = random_qkv(1, 2 * HEIGHT * WIDTH, HEAD_DIM)
        outputs = [
            camera_attention(
                query, key, value, camera_operator("ucpe", lens, view, HEIGHT, WIDTH, HEAD_DIM, dtype=torch.float64)
            )
            for view in (c2w, moved_world(c2w, seed, distance))
        ]
        torch.testing.assert_close(*outputs, atol=1e-9, rtol=1e-9)

    def test_far_from_the_origin_costs_no_precision(self, poses, error):
        lens, c2w = UCM(xfov=130, xi=0.7), poses(3)
        query, key, value = random_qkv(2, 3 * HEIGHT * WIDTH, HEAD_DIM, dtype=torch.float32)
        outputs = [
            camera_attention(query, key, value, camera_operator("ucpe", lens, view, HEIGHT, WIDTH, HEAD_DIM))
            for view in (c2w, moved_world(c2w, distance=1e6))
        ]
        assert error(*outputs) < 1e-5

    def test_absolute_encodings_do_depend_on_it(self, poses, error):
        lens, c2w = UCM(xfov=130, xi=0.7), poses(3)
        for encode in (plucker_rays, raw_parameters):
            assert error(encode(lens, moved_world(c2w), 3, 4), encode(lens, c2w, 3, 4)) > 0.5


class TestIdentities:
    def test_gta_is_prope_with_an_identity_camera_matrix(self, poses):
        lens = Pinhole(fx=640, fy=480, width=640, height=480)
        operators = [camera_operator(name, lens, poses(3), 3, 4, 16) for name in ("gta", "prope")]
        torch.testing.assert_close(operators[0].blocks, operators[1].blocks)
        torch.testing.assert_close(operators[0].inverse, operators[1].inverse)
        wide = camera_operator("prope", Pinhole(xfov=120), poses(3), 3, 4, 16)
        assert (wide.blocks - operators[0].blocks).abs().max() > 0.1

    @pytest.mark.parametrize("frame", ["paper", "transport"])
    def test_ucpe_of_tokens_that_all_look_along_the_axis_is_gta(self, poses, frame):
        lens = Pinhole(xfov=1e-3) if frame == "paper" else Equidistant(xfov=1e-3)
        ucpe = camera_operator("ucpe", lens, poses(3), 3, 4, 16, frame=frame)
        gta = camera_operator("gta", lens, poses(3), 3, 4, 16)
        torch.testing.assert_close(ucpe.blocks, gta.blocks.repeat_interleave(12, dim=0), atol=5e-5, rtol=0)
        x = torch.randn(1, 36, 16)
        torch.testing.assert_close(ucpe.output(x), gta.output(x), atol=5e-4, rtol=0)

    def test_a_lens_swap_that_leaves_the_rays_leaves_ucpe(self, poses):
        xi = 0.8
        ucm = UCM(xfov=140, xi=xi)
        eucm = EUCM(xfov=140, alpha=xi / (1 + xi), beta=1.0)
        operators = [camera_operator("ucpe", lens, poses(3), 3, 4, 16) for lens in (ucm, eucm)]
        torch.testing.assert_close(operators[0].blocks, operators[1].blocks, atol=1e-6, rtol=0)

    def test_ucpe_tells_lenses_apart_and_gta_does_not(self, poses):
        lenses = (Pinhole(xfov=90), UCM(xfov=160, xi=1.2))
        difference = {
            name: (lambda a, b: (a - b).abs().max())(
                *(camera_operator(name, lens, poses(3), 3, 4, 16).blocks for lens in lenses)
            )
            for name in ("ucpe", "gta")
        }
        assert difference["gta"] == 0
        assert difference["ucpe"] > 0.1

    def test_prope_does_not_depend_on_resolution(self, poses):
        lens = Pinhole(xfov=90)
        coarse, fine = (camera_operator("prope", lens, poses(2), 3 * n, 4 * n, 16).blocks for n in (1, 5))
        torch.testing.assert_close(coarse, fine)

    def test_transforms_cancel(self, lens, poses):
        x = random_qkv(2, 2 * HEIGHT * WIDTH, HEAD_DIM)[0]
        for encoding in ("ucpe", "gta", "prope"):
            operator = camera_operator(encoding, lens, poses(2), HEIGHT, WIDTH, HEAD_DIM, dtype=torch.float64)
            torch.testing.assert_close(operator.output(operator.value(x)), x, atol=1e-10, rtol=0)
            torch.testing.assert_close((operator.query(x) * operator.key(x)).sum(-1), (x * x).sum(-1))

    def test_rope_sees_differences_of_position_only(self):
        lens, c2w = Pinhole(xfov=1e-3), torch.eye(4)[None]
        operator = camera_operator("gta", lens, c2w, 6, 6, 16, dtype=torch.float64)
        query, key = random_qkv(1, 1, 16)[:2].expand(2, 1, 36, 16)
        logits = (operator.query(query) @ operator.key(key).mT).reshape(6, 6, 6, 6)
        torch.testing.assert_close(logits[1:, 1:, 1:, 1:], logits[:-1, :-1, :-1, :-1])
        assert logits.std() > 0.1


class TestHandling:
    @pytest.mark.parametrize("encoding", NAMES)
    def test_token_ranges_meet_as_the_whole_does(self, encoding, poses, error):
        lens, c2w = UCM(xfov=200, xi=2.3), poses(2, 3)
        operator = camera_operator(encoding, lens, c2w, 4, 5, HEAD_DIM)
        query, key, value = random_qkv(2, 2, 60, HEAD_DIM, dtype=torch.float32)
        whole = camera_attention(query, key, value, operator)
        for part in (slice(0, 20), slice(20, 60), slice(7, 33), slice(1, 60, 3)):
            piece = camera_attention(query[..., part, :], key, value, operator.tokens(part), operator)
            torch.testing.assert_close(piece, whole[..., part, :], atol=1e-5, rtol=1e-5)
        assert operator.tokens(slice(7, 33)).token_count == 26

    def test_indexing_along_the_batch(self, poses):
        operator = camera_operator("ucpe", UCM(xfov=200, xi=2.3), poses(2, 3, 2), 4, 4, HEAD_DIM)
        x = torch.randn(2, 3, 1, 32, HEAD_DIM)
        torch.testing.assert_close(operator[1].query(x[1]), operator.query(x)[1])
        torch.testing.assert_close(operator[:, 0].output(x[:, 0]), operator.output(x)[:, 0])
        assert operator[1, 2].valid.shape == (32,)
        with pytest.raises(IndexError, match="no batch"):
            operator[1, 2][0]

    def test_clips_with_lenses_of_different_models(self, poses):
        lenses = [Pinhole(xfov=80), UCM(xfov=200, xi=2.3), Equirectangular()]
        c2w = poses(3, 2)
        singles = [camera_operator("ucpe", lens, view, 4, 4, HEAD_DIM) for lens, view in zip(lenses, c2w)]
        batch = Operator.stack(singles)
        query, key, value = random_qkv(3, 2, 32, HEAD_DIM, dtype=torch.float32)
        together = camera_attention(query, key, value, batch)
        for i, single in enumerate(singles):
            alone = camera_attention(query[i], key[i], value[i], single)
            torch.testing.assert_close(together[i], alone, atol=1e-5, rtol=1e-5)
        assert batch.batch_shape == (3,)
        assert batch.valid.shape == (3, 32)

    def test_cameras_of_different_models_in_one_clip(self, poses):
        c2w = poses(2)
        parts = [
            camera_operator("ucpe", lens, c2w[i : i + 1], 4, 4, HEAD_DIM, anchor=c2w[0])
            for i, lens in enumerate([UCM(xfov=90, xi=0.0), UCM(xfov=150, xi=1.1)])
        ]
        lens = UCM(xfov=torch.tensor([90.0, 150.0]), xi=torch.tensor([0.0, 1.1]))
        whole = camera_operator("ucpe", lens, c2w, 4, 4, HEAD_DIM)
        torch.testing.assert_close(Operator.cat(parts).blocks, whole.blocks, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(Operator.cat(parts).cosine, whole.cosine)

    @pytest.mark.parametrize("encoding", NAMES)
    def test_one_lens_per_clip_and_per_frame(self, encoding, poses):
        xfov = torch.tensor([[60.0, 70, 80], [90, 100, 110]])
        c2w = poses(2, 3)
        together = camera_operator(encoding, UCM(xfov=xfov, xi=0.3), c2w, 2, 3, HEAD_DIM)
        x = torch.randn(2, 2, 18, HEAD_DIM)
        for b in range(2):
            one = camera_operator(encoding, UCM(xfov=xfov[b], xi=0.3), c2w[b], 2, 3, HEAD_DIM)
            torch.testing.assert_close(together[b].query(x[b]), one.query(x[b]))

    def test_a_lens_batch_without_a_pose_batch(self, poses):
        lens = UCM(xfov=torch.tensor([[60.0], [90.0]]), xi=0.3)
        for encoding in NAMES:
            operator = camera_operator(encoding, lens, poses(3), 2, 3, HEAD_DIM)
            assert operator.query(torch.randn(2, 1, 18, HEAD_DIM)).shape == (2, 1, 18, HEAD_DIM)

    def test_one_frame_and_zero_motion(self):
        still = torch.eye(4).repeat(5, 1, 1)
        for encoding in NAMES:
            for c2w in (still[:1], still):
                operator = camera_operator(encoding, UCM(xfov=200, xi=2.3), c2w, 4, 4, HEAD_DIM)
                query, key, value = random_qkv(1, 16 * len(c2w), HEAD_DIM, dtype=torch.float32)
                assert torch.isfinite(camera_attention(query, key, value, operator)).all()

    def test_moving_keeps_geometry_in_float32(self, poses):
        operator = camera_operator("ucpe", UCM(xfov=200, xi=2.3), poses(2), 4, 4, HEAD_DIM)
        assert operator.to(torch.bfloat16).blocks.dtype == torch.float32
        assert operator.to(torch.float64).cosine.dtype == torch.float64
        assert operator.to("meta").valid.device.type == "meta"
        assert torch.equal(operator.to("cpu").blocks, operator.blocks)

    def test_valid_is_none_when_every_token_has_a_ray(self, poses):
        assert camera_operator("ucpe", Pinhole(xfov=90), poses(2), 4, 4, 16).valid is None
        for encoding in NAMES:
            valid = camera_operator(encoding, UCM(xfov=200, xi=2.3), poses(2), 4, 4, 16).valid
            assert valid.shape == (32,)
            assert not valid.all()

    def test_position_and_frame_change_ucpe(self, poses):
        lens = UCM(xfov=130, xi=0.7)
        blocks = [
            camera_operator("ucpe", lens, poses(2), 4, 4, 16, **options).blocks
            for options in ({}, {"position": "corner"}, {"frame": "transport"})
        ]
        assert (blocks[0] - blocks[1]).abs().max() > 0.01
        assert (blocks[0] - blocks[2]).abs().max() > 0.01

    def test_repr(self, poses):
        operator = camera_operator("ucpe", UCM(xfov=200, xi=2.3), poses(3, 2), 4, 4, 16)
        assert repr(operator) == "Operator(batch (3,), 32 tokens, 24 without a ray, heads of 16, with RoPE)"


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"encoding": "rope"}, "encoding must be one of ucpe, gta, prope, cape"),
            ({"head_dim": 12}, "multiple of 8 with RoPE"),
            ({"head_dim": 6, "rope": False}, "multiple of 4 without RoPE"),
            ({"dtype": torch.bfloat16}, "float32 or float64"),
            ({"c2w": torch.zeros(2, 4, 4)}, "rigid"),
            ({"width": 0}, "width"),
            ({"frame": "ray"}, "frame"),
        ],
    )
    def test_one_clear_error(self, options, message):
        defaults = {"encoding": "ucpe", "lens": Pinhole(xfov=90), "c2w": torch.eye(4)[None]}
        with pytest.raises(ValueError, match=message):
            camera_operator(**{**defaults, "height": 2, "width": 3, "head_dim": 16, **options})

    def test_tensors_of_the_wrong_shape(self, poses):
        operator = camera_operator("ucpe", Pinhole(xfov=90), poses(2), 2, 3, 16)
        for shape in ((1, 12, 24), (1, 11, 16), (12, 16)):
            with pytest.raises(ValueError, match="12 tokens, 16 channels"):
                operator.query(torch.zeros(shape))

    def test_worlds_that_differ(self, poses):
        c2w = poses(2)
        operators = [camera_operator("ucpe", Pinhole(xfov=90), view, 2, 3, 16) for view in (c2w[:1], c2w[1:])]
        x = torch.zeros(1, 6, 16)
        with pytest.raises(ValueError, match="anchor"):
            camera_attention(x, x, x, *operators)
        with pytest.raises(ValueError, match="anchor"):
            Operator.cat(operators)

    def test_stacking_what_does_not_match(self, poses):
        lens = Pinhole(xfov=90)
        wide, tall = (camera_operator("ucpe", lens, poses(1), *size, 16) for size in ((2, 3), (3, 2)))
        with pytest.raises(ValueError, match="token grid"):
            Operator.stack([wide, tall])
        with pytest.raises(ValueError, match="head_dim"):
            Operator.stack([wide, camera_operator("ucpe", lens, poses(1), 2, 3, 32)])
        with pytest.raises(ValueError, match="differ"):
            Operator.stack([wide, camera_operator("ucpe", lens, poses(1), 2, 3, 16, rope=False)])
        for join in (Operator.stack, Operator.cat):
            with pytest.raises(ValueError, match="no operators"):
                join([])

    def test_large_translations_warn(self, poses):
        with pytest.warns(UserWarning, match="near-plane depth"):
            camera_operator("ucpe", Pinhole(xfov=90), poses(3, distance=12), 2, 3, 16)

    @pytest.mark.filterwarnings("error")
    def test_moderate_translations_far_from_the_origin_do_not(self, poses):
        camera_operator("ucpe", Pinhole(xfov=90), moved_world(poses(3, distance=9), distance=1000), 2, 3, 16)


def test_one_anchor_for_a_batch_is_indexed_with_it():
    c2w = torch.eye(4, dtype=torch.float64).repeat(3, 2, 1, 1)
    operator = camera_operator("ucpe", Pinhole(xfov=90), c2w, 2, 3, 8, anchor=c2w[0, 0])
    assert operator[1].anchor.shape == (4, 4)
    query = random_qkv(1, 12, 8)
    camera_attention(query, query, query, operator[0], operator[2])


@pytest.mark.parametrize("encoding", ["ucpe", "gta", "prope", "cape"])
def test_lenses_and_poses_broadcast_to_one_set_of_cameras(encoding):
    pose = torch.eye(4, dtype=torch.float64)
    xfov = torch.tensor([60.0, 90.0, 120.0], dtype=torch.float64)
    three = camera_operator(encoding, UCM(xfov=xfov, xi=2.3), pose[None], 2, 2, 8)
    assert three.token_count == 12 and three.batch_shape == ()
    grid = camera_operator(encoding, UCM(xfov=xfov[:, None], xi=2.3), pose.repeat(2, 1, 1), 2, 2, 8)
    assert grid.token_count == 8 and grid.batch_shape == (3,)
    assert grid[1].token_count == 8
    with pytest.raises(ValueError, match=r"batch shape \(3,\) does not fit poses of \(2,\) cameras"):
        camera_operator(encoding, UCM(xfov=xfov, xi=2.3), pose.repeat(2, 1, 1), 2, 2, 8)


def test_poses_rounded_to_bfloat16_still_make_inverses():
    c2w = moved_world(torch.eye(4, dtype=torch.float64)[None]).to(torch.bfloat16)
    operator = camera_operator("gta", Pinhole(xfov=90), c2w, 1, 1, 8, anchor=False, dtype=torch.float64)
    identity = torch.eye(4, dtype=torch.float64)
    torch.testing.assert_close(operator.blocks[0] @ operator.inverse[0], identity, atol=1e-12, rtol=0)
