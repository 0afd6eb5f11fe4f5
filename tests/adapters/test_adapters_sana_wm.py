"""SANA-WM's own camera branch through our lenses: against its own code, by property, and at its edges."""

import copy

import numpy as np
import pytest
import torch

from ucpe.adapters import CameraAdapter, SanaWMCamera, load_adapter
from ucpe.adapters.sana_wm import chunked_plucker
from ucpe.encodings import plucker_rays
from ucpe.lenses import UCM, KannalaBrandt, Pinhole
from ucpe.trajectories import Trajectory

theirs = pytest.importorskip("diffusers.models.transformers.transformer_sana_wm")

HEIGHT, WIDTH, ROWS, COLUMNS, FRAMES = 128, 192, 4, 6, 17
CPU = torch.device("cpu")


def own_camera(camera):
    """What diffusers' pipeline gives the transformer for a pinhole trajectory."""
    from diffusers.pipelines.sana_wm.cam_utils import prepare_camera

    matrix = camera.lens_per_frame().intrinsics(HEIGHT, WIDTH)
    numbers = torch.stack([matrix[:, 0, 0], matrix[:, 1, 1], matrix[:, 0, 2], matrix[:, 1, 2]], -1)
    poses = camera.c2w.numpy().astype(np.float32)
    return prepare_camera(poses, numbers.numpy(), target_size=(HEIGHT, WIDTH), vae_stride=(8, 32, 32))


def batch_of(*packed):
    names = {"camera_conditions": "raymap", "chunk_plucker": "chunk_plucker"}
    return {argument: torch.stack([one[name] for one in packed]) for argument, name in names.items()}


def last_bits_changed(arguments, seed):
    generator = torch.Generator().manual_seed(seed)
    bits = {name: torch.randint(-1, 2, value.shape, generator=generator) for name, value in arguments.items()}
    return {name: value * (1 + 1.2e-7 * bits[name]) for name, value in arguments.items()}


@pytest.fixture
def attached(world_model):
    return SanaWMCamera.for_transformer(world_model.transformer).attach(world_model.transformer)


@pytest.fixture
def pinholes():
    """An orbit, and a zoom of pixels that are not square with a principal point off the centre."""
    zoom = Pinhole(
        fx=torch.linspace(90, 220, FRAMES), fy=torch.linspace(80, 200, FRAMES), cx=101.0, cy=55.0, width=192, height=128
    )
    return [
        Trajectory.orbit(Pinhole(xfov=80), degrees=40, frames=FRAMES, pitch=-10, roll=4),
        Trajectory.dolly(zoom, distance=1.5, frames=FRAMES),
    ]


def test_a_pinhole_gives_the_untouched_models_output(world_model, pinholes):
    """Ours is computed in float64 and rounded once, theirs in float32: rays agree to the last bit or two of float32.

    What a change of the last bit makes of the output has a long tail, so it is tried several times.
    """
    own = [own_camera(camera) for camera in pinholes]
    with torch.no_grad():
        untouched = world_model.run(**batch_of(*own))
        jittered = [world_model.run(**last_bits_changed(batch_of(*own), seed)) for seed in range(5)]
    adapter = SanaWMCamera.for_transformer(world_model.transformer).attach(world_model.transformer)
    condition = adapter.encode(pinholes, **world_model.size)
    matrices, _ = theirs._process_camera_conditions_ucpe(
        batch_of(*own)["camera_conditions"], 2, condition.grid, (1, 1, 1)
    )
    torch.testing.assert_close(condition.operator.blocks, matrices.flatten(1, 3), atol=6e-7, rtol=0)
    torch.testing.assert_close(condition.features, batch_of(*own)["chunk_plucker"], atol=6e-7, rtol=0)
    with torch.no_grad(), adapter.camera(condition):
        output = world_model.run(**batch_of(*own))
        assert torch.equal(world_model.run(), output), "our cameras replace those of the call"
    difference = (output - untouched).abs()
    assert difference.max() < 5 * max((other - untouched).abs().max() for other in jittered)
    assert difference.max() < 1e-4 * untouched.abs().max() and difference.median() < 1e-6 * untouched.abs().median()


def test_ucm_rays_are_those_of_its_own_helpers_with_xi(world_model):
    """Per frame, so that a zoom of field of view and distortion at once is covered; its vertical fov is ours too."""
    lens = UCM(xfov=torch.linspace(90, 150, FRAMES), xi=torch.linspace(0, 1.4, FRAMES))
    camera = Trajectory.pan(lens, degrees=50, frames=FRAMES, pitch=20, roll=-15)
    latent = camera.relative_to_first().latent_frames(8)
    xi, xfov = latent.lens.parameters["xi"].double(), latent.lens.parameters["xfov"].double()
    focal = theirs.compute_fx_from_fov_xi(xfov, xi, COLUMNS, dtype=torch.float64)
    yfov = theirs.compute_fov_from_fx_xi(focal, xi, ROWS, dtype=torch.float64)
    centre = torch.full((3,), COLUMNS / 2).double(), torch.full((3,), ROWS / 2).double()
    rays = theirs.ucm_unproject_grid_fov(xfov, yfov, xi, ROWS, COLUMNS, *centre, CPU, torch.float64)
    matrices = theirs.world_to_ray_mats(rays[None], latent.c2w[None])
    adapter = SanaWMCamera.for_transformer(world_model.transformer)
    condition = adapter.encode(camera, **world_model.size)
    assert condition.operator.valid is None
    torch.testing.assert_close(condition.operator.blocks[0], matrices[0].flatten(0, 2).float(), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        condition.operator.inverse[0],
        theirs._invert_SE3(matrices)[0].flatten(0, 2).float(),
        atol=1e-6,
        rtol=0,
    )
    maps = theirs.compute_up_lat_map(
        latent.rotations[None].float(), *(x.float()[None] for x in (xfov, yfov, xi)), ROWS, COLUMNS, *centre
    )
    without = SanaWMCamera.for_transformer(world_model.transformer, plucker=False)
    ours = without.encode(camera, **world_model.size).features[0]
    torch.testing.assert_close(ours, torch.cat(maps, -1)[0].movedim(-1, 0), atol=2e-4, rtol=0)


def test_plucker_rays_of_all_frames_of_a_chunk():
    """Written out: latent frame k sees video frames 8k - 7 to 8k; the first sees 0 to 7."""
    camera = Trajectory.orbit(KannalaBrandt(xfov=130, k1=0.03), degrees=30, frames=FRAMES).relative_to_first()
    packed = chunked_plucker(camera, 8, ROWS, COLUMNS)
    assert packed.shape == (48, 3, ROWS, COLUMNS)
    for latent, frames in enumerate((range(0, 8), range(1, 9), range(9, 17))):
        for place, frame in enumerate(frames):
            rays = plucker_rays(camera.lens, camera[frame].c2w, ROWS, COLUMNS, position="corner")[0]
            torch.testing.assert_close(packed[6 * place : 6 * place + 6, latent], rays.movedim(-1, 0))
    assert chunked_plucker(camera[:1], 8, ROWS, COLUMNS).shape == (48, 1, ROWS, COLUMNS)


def test_the_world_frame_is_free_and_the_lens_is_not(world_model, attached):
    output = world_model.steered(attached)
    turn = Trajectory.orbit(Pinhole(xfov=90), degrees=100, frames=5, pitch=30, roll=20).c2w[-1]
    turn[:3, 3] = torch.tensor([5.0, -2.0, 9.0])
    moved = [camera.transformed(turn) for camera in world_model.cameras]
    torch.testing.assert_close(world_model.steered(attached, moved), output, atol=2e-4, rtol=1e-4)
    swapped = [camera.with_lens(UCM(xfov=120, xi=0.5)) for camera in world_model.cameras]
    assert (world_model.steered(attached, swapped) - output).abs().max() > 1e-2
    attached.detach()
    with pytest.raises(ValueError, match="not attached"):
        attached.detach()


def test_tokens_without_a_ray_take_no_part_in_the_branch(world_model, attached, fisheye):
    """Whatever is at dark tokens, neither kind of camera attention tells the others, nor gives them anything."""
    cameras = [camera.with_lens(fisheye) for camera in world_model.cameras]
    condition = attached.encode(cameras, **world_model.size)
    valid = condition.operator.valid
    assert 0 < (~valid).sum() < valid.numel() / 2
    assert (condition.features[:, :6, 0].movedim(1, -1).flatten(1, 2)[~valid[:, :24]] == 0).all()
    for number in (0, 2):
        branch = world_model.transformer.blocks[number].attn.cam_attn
        outputs = []

        def change(module, args, kwargs, outputs=outputs):
            """Call the branch once more, with noise as queries, keys and values of dark tokens."""
            if len(outputs) < 1:
                outputs.append(None)
                noise = [torch.where(valid[..., None, None], t, torch.randn_like(t)) for t in args[:3]]
                outputs.append(module(*noise, *args[3:], **kwargs))
                outputs[0] = module(*args, **kwargs)

        handle = branch.register_forward_pre_hook(change, with_kwargs=True)
        with torch.no_grad(), attached.camera(condition):
            world_model.run()
        handle.remove()
        assert torch.equal(*outputs)
        assert (outputs[0][~valid] == 0).all() and (outputs[0][valid] != 0).any()


def test_a_model_with_orientation_instead_of_plucker_rays(world_model, make_sana_wm):
    world_model.transformer = make_sana_wm(use_chunk_plucker_post_attn=False)
    cameras = [Trajectory.pan(Pinhole(xfov=x), degrees=30, frames=FRAMES) for x in (70.0, 90.0)]
    with torch.no_grad():
        untouched = world_model.run(camera_conditions=batch_of(*map(own_camera, cameras))["camera_conditions"])
        adapter = SanaWMCamera.for_transformer(world_model.transformer).attach(world_model.transformer)
        output = world_model.steered(adapter, cameras)
        assert (output - untouched).abs().max() < 1e-3 * untouched.abs().max()
        mixed = world_model.steered(adapter, [cameras[0], cameras[1].with_lens(KannalaBrandt(xfov=90))])
    torch.testing.assert_close(mixed[0], output[0])
    assert (mixed[1] - output[1]).abs().max() > 1e-2


def test_checkpointed_gradients_of_the_branch(world_model):
    adapter = SanaWMCamera.for_transformer(world_model.transformer, trained=True).attach(world_model.transformer)
    adapter.set_trainable(world_model.transformer)
    trained = adapter.trainable_parameters(world_model.transformer)

    def gradients():
        return torch.autograd.grad(world_model.steered(adapter).square().mean(), trained)

    expected = gradients()
    assert all(gradient.abs().max() > 0 for gradient in expected), "every trained weight has a say"
    world_model.transformer.enable_gradient_checkpointing()
    for one, other in zip(gradients(), expected):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)


def test_a_trained_branch_is_saved_loaded_and_taken_out_again(world_model, tmp_path):
    transformer = world_model.transformer
    before = copy.deepcopy(transformer.state_dict())
    adapter = SanaWMCamera.for_transformer(transformer, trained=True).attach(transformer)
    names = {name for name, _ in adapter.tuned_parameters(transformer)}
    assert {name.split(".")[-2] for name in names} == {
        *("q_proj_cam", "k_proj_cam", "v_proj_cam", "out_proj_cam", "q_norm_cam", "k_norm_cam", "conv_k_cam"),
        *("plucker_proj", "proj"),
    }
    with torch.no_grad():
        for parameter in adapter.trainable_parameters(transformer):
            parameter.add_(0.05)
        changed = world_model.steered(adapter)
    adapter.save_pretrained(tmp_path)
    adapter.detach()
    assert all(torch.equal(value, before[name]) for name, value in transformer.state_dict().items())
    again = load_adapter(tmp_path).attach(transformer)
    with torch.no_grad():
        assert torch.equal(world_model.steered(again), changed)


def test_an_adapter_beside_its_own_branch(world_model, randomise):
    """Our spatial attention adapter on SANA-WM, in all placements, while its own branch gets its own camera."""
    own = batch_of(*(own_camera(camera.with_lens(Pinhole(xfov=80))) for camera in world_model.cameras))
    for placement in ("parallel", "pre", "post"):
        with torch.no_grad():
            before = world_model.run(**own)
            adapter = CameraAdapter.for_transformer(world_model.transformer, placement=placement, compression=2)
            adapter.attach(world_model.transformer)
            with adapter.camera(adapter.encode(world_model.cameras, **world_model.size)):
                assert torch.equal(world_model.run(**own), before)
                randomise(adapter, 0.1)
                assert (world_model.run(**own) - before).abs().max() > 1e-3
            adapter.detach()


@pytest.mark.parametrize("moved", ["argument", "branch"])
def test_another_diffusers_is_refused(world_model, monkeypatch, moved):
    if moved == "argument":
        monkeypatch.setattr(type(world_model.transformer), "forward", lambda self, hidden_states, camera: None)
    else:
        del world_model.transformer.blocks[1].attn.cam_attn
    adapter = SanaWMCamera.for_transformer(world_model.transformer)
    name = "cam_pos_embeds" if moved == "argument" else r"blocks\[1\]\.attn\.cam_attn"
    with pytest.raises(ValueError, match=rf"another SANA-WM than .* {name}.* moved"):
        adapter.attach(world_model.transformer)


def test_it_is_for_sana_wm_only(make_wan):
    wan = make_wan()
    with pytest.raises(ValueError, match="SanaWMTransformer3DModel"):
        SanaWMCamera().attach(wan)


@pytest.mark.parametrize(("size", "message"), [((128, 200), "multiple of 32"), ((100, 192), "multiple of 32")])
def test_sizes_of_whole_tokens(attached, world_model, size, message):
    with pytest.raises(ValueError, match=message):
        attached.encode(world_model.cameras, *size)


def test_full_size_on_the_meta_device():
    """The released configuration, and how much of it is trained with the branch."""
    from diffusers import SanaWMTransformer3DModel

    with torch.device("meta"):
        transformer = SanaWMTransformer3DModel()
    adapter = SanaWMCamera.for_transformer(transformer, trained=True)
    assert sum(parameter.numel() for parameter in transformer.parameters()) == 2_661_800_448
    assert sum(parameter.numel() for parameter in adapter.trainable_parameters(transformer)) == 502_317_760
    assert adapter.config.num_blocks == 20 and adapter.config.plucker
