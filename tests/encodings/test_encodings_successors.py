"""URoPE, Sightline, RoRE, RayPE and RayRoPE against dense definitions, token by token, and their invariances."""

import math

import pytest
import torch
from torch import nn

from ucpe.encodings import (
    AddedRays,
    Operator,
    RaySegments,
    RotaryRays,
    camera_attention,
    camera_operator,
    plucker_rays,
    sightings,
    sightline_features,
)
from ucpe.encodings.frames import anchored_poses
from ucpe.encodings.learned import mean_turn
from ucpe.encodings.operators import DEPTHS, PAIRWISE
from ucpe.encodings.sightings import REACH
from ucpe.lenses import UCM, BrownConrady, Pinhole
from ucpe.trajectories.rotations import rotation_from_angles

HEIGHT, WIDTH, HEADS, HEAD_DIM, VIEWS = 2, 3, 2, 16, 3
TOKENS = VIEWS * HEIGHT * WIDTH


def tensors(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, HEADS, TOKENS, HEAD_DIM, generator=generator, dtype=torch.float64)


def upright_world(seed=0):
    """A change of world frame that keeps gravity."""
    world = torch.eye(4, dtype=torch.float64)
    world[:3, :3] = rotation_from_angles(*torch.tensor([0.0, 130.0, 0.0], dtype=torch.float64))
    world[:3, 3] = torch.randn(3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return world


def places(lens, pose, points):
    """Where one camera sees points of the world (n, 3), in tokens, by the rules of `place_points`."""
    inside = torch.stack([pose[:3, :3].T @ (point - pose[:3, 3]) for point in points])
    pixels, seen = lens.project(inside, HEIGHT, WIDTH)
    centre = torch.tensor([WIDTH / 2, HEIGHT / 2], dtype=torch.float64)
    found = []
    for point, pixel, visible in zip(inside, pixels, seen):
        offset = pixel - centre if visible else 1e9 * point[:2]
        found.append(centre + offset * min(1.0, REACH * max(HEIGHT, WIDTH) / offset.norm().item()))
    return found


def turn(angles):
    """Rotation matrix that turns channel i with channel i + n by the i-th of n angles."""
    cosine, sine = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([cosine, -sine], 1), torch.cat([sine, cosine], 1)])


def rope_matrix(position, head, channels, depth_of):
    """RoPE of columns on half of the channels and rows on the other, the position chosen by frequency."""
    count = channels // 4
    blocks = []
    for axis in range(2):
        angles = [position[depth_of(head, i)][axis] * 100 ** (-i / count) for i in range(count)]
        blocks.append(turn(torch.stack(angles)))
    return torch.block_diag(*blocks)


def pairwise_reference(encoding, lens, c2w, query, key, value):
    """Softmax attention with one explicit matrix per pair of tokens and head."""
    rays = lens.rays(HEIGHT, WIDTH, dtype=torch.float64)
    own = [torch.tensor([c + 0.5, r + 0.5]).double() for r in range(HEIGHT) for c in range(WIDTH)]
    channels = HEAD_DIM if encoding == "urope" else HEAD_DIM // 2
    cells, count = HEIGHT * WIDTH, len(DEPTHS)

    def depth_of(head, i):
        return (head + i) % count

    ray_blocks = camera_operator("ucpe", lens, c2w, HEIGHT, WIDTH, HEAD_DIM, rope=False, dtype=torch.float64)
    output = torch.zeros_like(query)
    valid = rays.valid.flatten().repeat(VIEWS)
    points = []
    for pose in c2w:
        for origin, direction in zip(rays.origins.flatten(0, 1), rays.directions.flatten(0, 1)):
            points += [pose[:3, :3] @ (origin + depth * direction) + pose[:3, 3] for depth in DEPTHS]
    seen = [places(lens, pose, points) for pose in c2w]
    for head in range(HEADS):
        for q in range(TOKENS):
            camera = q // cells
            mine = rope_matrix([own[q % cells]] * count, head, channels, depth_of)
            logits, values = [], []
            for k in range(TOKENS):
                at = seen[camera][count * k : count * (k + 1)]
                matrix = mine @ rope_matrix(at, head, channels, depth_of).T
                if encoding == "sightline":
                    block = ray_blocks.blocks[q] @ ray_blocks.inverse[k]
                    matrix = torch.block_diag(*[block] * (HEAD_DIM // 8), matrix)
                logits.append(query[head, q] @ matrix @ key[head, k] / HEAD_DIM**0.5)
                values.append(matrix @ value[head, k])
            weights = torch.softmax(torch.stack(logits).masked_fill(~valid, -torch.inf), 0)
            output[head, q] = weights @ torch.stack(values)
    return output


@pytest.mark.parametrize("encoding", PAIRWISE)
@pytest.mark.parametrize("name", ["ucm[200, 2.3]", "brown_conrady", "omni_stereo"])
@pytest.mark.slow
def test_dense_definition_through_any_lens(encoding, name, lenses, poses, error):
    c2w, (query, key, value) = poses(VIEWS), tensors()
    options = {"heads": HEADS, "dtype": torch.float64}
    operator = camera_operator(encoding, lenses[name], c2w, HEIGHT, WIDTH, HEAD_DIM, **options)
    expected = pairwise_reference(encoding, lenses[name], c2w, query, key, value)
    assert error(camera_attention(query, key, value, operator), expected) < 1e-10
    composed = camera_attention(query, key, value, operator.replaced(blocks=operator.blocks.clone().requires_grad_()))
    assert error(composed.detach(), expected) < 1e-10
    single = camera_attention(*tensors().float(), operator.to(torch.float32))
    assert error(single, expected) < 2e-5


@pytest.mark.parametrize("encoding", PAIRWISE)
def test_any_rigid_change_of_the_world_is_unnoticed(encoding, lens, poses):
    c2w, world = poses(VIEWS), poses(2, seed=7, distance=5)[1]
    outputs = []
    for cameras in (c2w, world @ c2w):
        options = {"heads": HEADS, "dtype": torch.float64}
        operator = camera_operator(encoding, lens, cameras, HEIGHT, WIDTH, HEAD_DIM, **options)
        outputs.append(camera_attention(*tensors(), operator))
    assert (outputs[0] - outputs[1]).abs().max() < 1e-9


def test_to_its_own_camera_a_token_is_where_it_is_and_sightline_is_ucpe(lens, poses):
    c2w = poses(VIEWS)
    places = sightings(lens, c2w, HEIGHT, WIDTH, DEPTHS).unflatten(-2, (VIEWS, HEIGHT, WIDTH))
    own = torch.stack([places[view, :, view] for view in range(VIEWS)])
    columns, rows = torch.meshgrid(torch.arange(WIDTH) + 0.5, torch.arange(HEIGHT) + 0.5, indexing="xy")
    assert torch.allclose(own, torch.stack([columns, rows], -1).double().expand_as(own), atol=1e-6)
    one = [t[:, : HEIGHT * WIDTH] for t in tensors()]
    operators = [
        camera_operator(name, lens, c2w[:1], HEIGHT, WIDTH, HEAD_DIM, dtype=torch.float64)
        for name in ("sightline", "ucpe")
    ]
    outputs = [camera_attention(*one, operator) for operator in operators]
    assert torch.allclose(*outputs, atol=1e-6)


@pytest.mark.parametrize("group", [1, 2, 100], ids="{} views at once".format)
@pytest.mark.parametrize("encoding", PAIRWISE)
def test_ranges_of_tokens_batches_and_lenses_per_frame(encoding, group, poses, monkeypatch):
    monkeypatch.setattr("ucpe.encodings.attention.GROUP_VALUES", group * 2 * HEADS * TOKENS * HEAD_DIM)
    c2w = poses(2, VIEWS)
    lens = UCM(xfov=torch.tensor([[60.0, 120, 180], [90, 90, 100]]), xi=torch.tensor([[0.0, 0.7, 2.0], [0, 1, 2]]))
    options = {"heads": HEADS, "dtype": torch.float64}
    operator = camera_operator(encoding, lens, c2w, HEIGHT, WIDTH, HEAD_DIM, **options)
    query, key, value = (t.expand(2, -1, -1, -1) for t in tensors())
    whole = camera_attention(query, key, value, operator)
    part = slice(4, 15)
    found = camera_attention(query[..., part, :], key, value, operator.tokens(part), operator)
    assert torch.allclose(found, whole[..., part, :])
    given = slice(HEIGHT * WIDTH, None)
    wanted = slice(0, HEIGHT * WIDTH)
    masked = torch.ones(TOKENS, dtype=torch.bool)
    masked[wanted] = False
    cross = camera_attention(
        query[..., wanted, :], key[..., given, :], value[..., given, :], operator.tokens(wanted), operator.tokens(given)
    )
    everywhere = camera_attention(query, key, value, operator, attention_mask=masked.expand(TOKENS, TOKENS))
    assert torch.allclose(cross, everywhere[..., wanted, :])
    alone = camera_operator(encoding, lens[1], c2w[1], HEIGHT, WIDTH, HEAD_DIM, **options)
    assert torch.allclose(camera_attention(query[1], key[1], value[1], alone), whole[1])
    first = camera_operator(encoding, lens[0], c2w[0], HEIGHT, WIDTH, HEAD_DIM, **options)
    assert torch.allclose(camera_attention(query, key, value, Operator.stack([first, alone])), whole)


def test_views_are_grouped_whole_and_parts_come_alone(poses):
    operator = camera_operator("urope", Pinhole(xfov=90), poses(5), HEIGHT, WIDTH, HEAD_DIM)
    cells = HEIGHT * WIDTH
    whole = [(slice(0, 2), slice(0, 2 * cells)), (slice(2, 4), slice(2 * cells, 4 * cells))]
    assert list(operator.view_groups(2)) == [*whole, (slice(4, 5), slice(4 * cells, 5 * cells))]
    part = operator.tokens(slice(2, 4 * cells + 1))
    cut = [(slice(0, 1), slice(0, cells - 2)), (slice(1, 4), slice(cells - 2, 4 * cells - 2))]
    assert list(part.view_groups(9)) == [*cut, (slice(4, 5), slice(4 * cells - 2, 4 * cells - 1))]
    inside = operator.tokens(slice(cells + 1, cells + 3))
    assert list(inside.view_groups(9)) == [(slice(1, 2), slice(0, 2))]


def test_what_cannot_meet_is_refused(poses):
    c2w = poses(4)
    wanted, given = (
        camera_operator("urope", Pinhole(xfov=90), c2w[part], HEIGHT, WIDTH, HEAD_DIM, anchor=c2w[0])
        for part in (slice(0, 2), slice(2, 4))
    )
    with pytest.raises(ValueError, match="one operator of all cameras"):
        camera_attention(*torch.randn(3, 1, 12, HEAD_DIM), wanted, given)
    with pytest.raises(ValueError, match="built into one operator"):
        Operator.cat([wanted, wanted])
    with pytest.raises(ValueError, match="without gaps"):
        wanted.tokens(slice(0, 8, 2))
    with pytest.raises(ValueError, match="made of RoPE"):
        camera_operator("sightline", Pinhole(xfov=90), c2w, HEIGHT, WIDTH, HEAD_DIM, rope=False)
    with pytest.raises(ValueError, match="knows no views"):
        next(camera_operator("ucpe", Pinhole(xfov=90), c2w, HEIGHT, WIDTH, HEAD_DIM).view_groups(1))


def test_features_of_sightline_know_gravity_and_no_world(poses):
    lens, c2w = UCM(xfov=200, xi=2.3), poses(VIEWS)
    features = sightline_features(lens, c2w, 4, 4, dtype=torch.float64)
    assert features.shape == (VIEWS, 4, 4, 27)
    moved = sightline_features(lens, upright_world() @ c2w, 4, 4, dtype=torch.float64)
    assert torch.allclose(moved, features, atol=1e-9)
    tilted = sightline_features(lens, poses(2, seed=3)[1] @ c2w, 4, 4, dtype=torch.float64)
    assert (tilted - features).abs().max() > 0.1
    level = sightline_features(lens, c2w, 4, 4, upright=False, dtype=torch.float64)
    anyhow = sightline_features(lens, poses(2, seed=3)[1] @ c2w, 4, 4, upright=False, dtype=torch.float64)
    assert level.shape[-1] == 24
    assert torch.allclose(level, anyhow, atol=1e-9)
    rays = plucker_rays(lens, anchored_poses(c2w, upright=True), 8, 8, dtype=torch.float64)
    assert torch.allclose(features[1, 1, 2, :24].unflatten(0, (2, 2, 6)), 8 * rays[1, 2:4, 4:6])


@pytest.mark.parametrize("pitch", [90.0, -90.0])
def test_cameras_that_look_straight_up_have_an_upright_frame(pitch):
    pose = torch.eye(4, dtype=torch.float64)
    angles = torch.tensor([pitch, 40.0, 0.0], dtype=torch.float64)
    pose[:3, :3] = rotation_from_angles(*angles)
    anchored = anchored_poses(pose[None], upright=True)[0]
    assert torch.allclose(anchored[:3, :3] @ anchored[:3, :3].T, torch.eye(3, dtype=torch.float64))
    assert torch.allclose(anchored[:3, 0], torch.tensor([1.0, 0, 0], dtype=torch.float64), atol=1e-6)


def plain_attention(query, key, value):
    weights = torch.softmax(query @ key.mT / HEAD_DIM**0.5, -1)
    return weights @ value


def test_rore_turns_by_sums_over_the_ray(poses, error):
    torch.manual_seed(0)
    layer = RotaryRays(HEAD_DIM).double()
    nn.init.normal_(layer.frequency)
    lens, c2w = UCM(xfov=120, xi=0.7), poses(VIEWS)
    rays = plucker_rays(lens, c2w, HEIGHT, WIDTH, dtype=torch.float64).flatten(0, 2)
    query, key, value = tensors()
    found = plain_attention(*layer(query, key, rays), value)
    matrices = []
    for ray in rays:
        mirrored = [*ray, *(1 - ray)]
        angles = [sum(p * layer.frequency[n, i] for n, p in enumerate(mirrored)) for i in range(HEAD_DIM // 2)]
        matrices.append(turn(torch.stack(angles)))
    logits = torch.stack(
        [torch.stack([query[:, q] @ matrices[q].T @ matrices[k] for k in range(TOKENS)], 1) for q in range(TOKENS)], 1
    )
    logits = (logits * key[:, None]).sum(-1) / HEAD_DIM**0.5
    assert error(found.detach(), (torch.softmax(logits, -1) @ value).detach()) < 1e-10


def test_raype_is_the_reciprocal_product_and_starts_at_nothing(poses):
    layer = AddedRays(HEADS, HEAD_DIM).double()
    rays = plucker_rays(Pinhole(xfov=90), poses(VIEWS), HEIGHT, WIDTH, dtype=torch.float64).flatten(0, 2)
    assert not any(added.any() for added in layer(rays))
    identity = torch.eye(HEADS * HEAD_DIM, 7, dtype=torch.float64).index_fill(1, torch.tensor(6), 0)
    layer.eq = layer.ek = nn.Linear(7, HEADS * HEAD_DIM, bias=False).double()
    layer.eq.weight.data.copy_(identity)
    nn.init.zeros_(layer.scale_gate[2].weight)  # a gate of one half
    added = [t.transpose(0, 1).flatten(1) for t in layer(rays)]
    for i in range(TOKENS):
        for j in range(TOKENS):
            (d, m), (e, n) = rays[i].split(3), rays[j].split(3)
            m, n = m / m.norm().clamp(min=1e-6), n / n.norm().clamp(min=1e-6)
            lengths = [((a @ a + b @ b) / (HEADS * HEAD_DIM) + 1e-6).sqrt() for a, b in ((d, m), (e, n))]
            product = (d @ n + m @ e) / (lengths[0] * lengths[1]) / 4
            assert abs(added[0][i] @ added[1][j] - product) < 1e-9
    operator = camera_operator("gta", Pinhole(xfov=90), torch.eye(4).repeat(VIEWS, 1, 1), HEIGHT, WIDTH, HEAD_DIM)
    operator, (query, key, value) = operator.to(torch.float64), tensors()
    found = camera_attention(query, key, value, operator, added=layer(rays))
    asked, seen = operator.query(query) + layer(rays)[0], operator.key(key) + layer(rays)[1]
    assert torch.allclose(found, operator.output(plain_attention(asked, seen, operator.value(value))))


def test_raype_by_its_definition(poses):
    torch.manual_seed(0)
    layer = AddedRays(HEADS, HEAD_DIM).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    rays = plucker_rays(UCM(xfov=120, xi=0.7), poses(VIEWS), HEIGHT, WIDTH, dtype=torch.float64).flatten(0, 2)
    rays[0, 3:] = 0  # through the world's origin: a moment without direction
    for_query, for_key = layer(rays)
    assert for_query.all() and not any(added.any() for added in layer(torch.zeros(1, 6, dtype=torch.float64)))
    first, last = layer.scale_gate[0], layer.scale_gate[2]
    for token, ray in enumerate(rays):
        direction, moment = ray.split(3)
        size = moment.norm().clamp(min=1e-6).log()
        moment = moment / size.exp()
        hidden = first.weight[:, 0] * size + first.bias
        hidden = hidden / (1 + (-hidden).exp())
        gate = 1 / (1 + (-(last.weight @ hidden + last.bias)).exp())
        for found, projection, norm, strength, numbers in (
            (for_query, layer.eq, layer.norm_pe_q, layer.alpha_q, (direction, moment)),
            (for_key, layer.ek, layer.norm_pe_k, layer.alpha_k, (moment, direction)),
        ):
            hidden = projection[0].weight @ torch.cat([*numbers, size[None]])
            hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
            projected = projection[2].weight @ hidden
            projected = projected / (projected.square().mean() + 1e-6).sqrt()
            expected = strength * gate * norm.weight * projected
            torch.testing.assert_close(found[:, token].flatten(), expected, atol=1e-10, rtol=1e-10)


def test_mean_turn_is_the_mean():
    start, end = torch.tensor([0.3, -2.0, 1.0]).double(), torch.tensor([4.0, 5.0, 1.0]).double()
    between = start + (end - start) * (torch.arange(20_000).double()[:, None] + 0.5) / 20_000
    cosine, sine = mean_turn(start, end)
    assert torch.allclose(cosine, between.cos().mean(0), atol=1e-7)
    assert torch.allclose(sine, between.sin().mean(0), atol=1e-7)


@pytest.mark.parametrize("lens", [Pinhole(xfov=90), UCM(xfov=180, xi=2.0), BrownConrady(xfov=100, k1=-0.2, k2=0.03)])
@pytest.mark.slow
def test_rayrope_by_its_definition_and_in_any_world(lens, poses, error):
    torch.manual_seed(0)
    layer = RaySegments(8, HEAD_DIM).double()
    nn.init.normal_(layer.distance.weight, std=0.3)
    layer.distance.bias.data.copy_(torch.tensor([0.5, 0.4]))
    c2w, (query, key, value) = poses(VIEWS), tensors()
    tokens = torch.randn(TOKENS, 8, dtype=torch.float64)
    found = layer(query, key, value, tokens, lens, c2w, HEIGHT, WIDTH)
    moved = layer(query, key, value, tokens, lens, poses(2, seed=7, distance=3)[1] @ c2w, HEIGHT, WIDTH)
    assert error(moved.detach(), found.detach()) < 1e-9
    rays, cells = lens.rays(HEIGHT, WIDTH, dtype=torch.float64), HEIGHT * WIDTH
    rates = 2 * math.pi / torch.tensor([4.0, 4, 4, 8, 8, 80], dtype=torch.float64)

    def coordinates(camera, token, distance):
        pose = c2w[token // cells]
        point = pose[:3, :3] @ (distance * rays.directions.flatten(0, 1)[token % cells]) + pose[:3, 3]
        centre = c2w[camera][:3, :3].T @ (pose[:3, 3] - c2w[camera][:3, 3])
        u, v = 2 * places(lens, c2w[camera], [point])[0] / torch.tensor([WIDTH, HEIGHT]) - 1
        scale = (1 + u * u + v * v).sqrt()
        far = (point - c2w[camera][:3, 3]).norm().clamp(max=10)
        return torch.stack([*centre, u / scale, v / scale, far])

    def matrix(camera, token):
        middle, spread = layer.distance(tokens[token])
        ends = [(middle + sign * spread).exp().clamp(0.01, 20) for sign in (-1, 1)]
        start, end = (coordinates(camera, token, distance) * rates for distance in ends)
        cosine, sine = (torch.diag(t) for t in mean_turn(start, end))
        turned = torch.cat([torch.cat([cosine, -sine], 1), torch.cat([sine, cosine], 1)])
        return torch.block_diag(turned, torch.eye(HEAD_DIM - 12, dtype=torch.float64))

    with torch.no_grad():
        expected = torch.zeros_like(query)
        for q in range(TOKENS):
            mine = matrix(q // cells, q)
            if q % cells == 0:
                others = [matrix(q // cells, k).T for k in range(TOKENS)]
            keys = torch.stack([other @ key[:, k, :, None] for k, other in enumerate(others)], 1)[..., 0]
            values = torch.stack([other @ value[:, k, :, None] for k, other in enumerate(others)], 1)[..., 0]
            asked = (mine.T @ query[:, q, :, None])[..., 0]
            weights = torch.softmax((keys @ asked[..., None])[..., 0] / HEAD_DIM**0.5, -1)
            expected[:, q] = (weights[:, None] @ values)[:, 0] @ mine.T
    assert error(found.detach(), expected) < 1e-7  # its frequencies were made in float32
    found.square().sum().backward()
    assert layer.distance.weight.grad.abs().max() > 0
    with pytest.raises(ValueError, match="12 channels"):
        RaySegments(8, 8)


def test_rescaling_keeps_every_tokens_size_and_discounting_divides_weights(poses):
    c2w, (query, key, value) = poses(VIEWS, distance=8), tensors()
    operator = camera_operator("ucpe", Pinhole(xfov=90), c2w, HEIGHT, WIDTH, HEAD_DIM, dtype=torch.float64)

    def shrunk(moved, before):
        sizes = [t.square().mean(-1, keepdim=True).sqrt() for t in (before, moved)]
        return moved * (sizes[0] / sizes[1]).clamp(max=1)

    transformed = (operator.query(query), operator.key(key), operator.value(value))
    small = [shrunk(moved, before) for moved, before in zip(transformed, (query, key, value))]
    growth = transformed[1].norm(dim=-1) / key.norm(dim=-1)
    assert growth.max() > 3
    found = camera_attention(query, key, value, operator, rescale=True)
    assert torch.allclose(found, operator.output(plain_attention(*small)), atol=1e-5)
    weights = torch.softmax(transformed[0] @ transformed[1].mT / HEAD_DIM**0.5, -1)
    weights = weights / growth.clamp(min=1)[:, None].square()
    weights = weights / weights.sum(-1, keepdim=True)
    found = camera_attention(query, key, value, operator, discount=True)
    assert torch.allclose(found, operator.output(weights @ transformed[2]), atol=1e-5)
    masked = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril()
    float_mask = torch.zeros(TOKENS, TOKENS, dtype=torch.float64).masked_fill(~masked, -torch.inf)
    both = [camera_attention(query, key, value, operator, None, mask, discount=True) for mask in (masked, float_mask)]
    assert torch.allclose(*both)
    near = camera_operator("ucpe", Pinhole(xfov=90), poses(1), HEIGHT, WIDTH, HEAD_DIM, dtype=torch.float64)
    one = [t[:, : HEIGHT * WIDTH] for t in (query, key, value)]
    plain = camera_attention(*one, near)
    assert torch.allclose(camera_attention(*one, near, rescale=True, discount=True), plain, atol=1e-5)
