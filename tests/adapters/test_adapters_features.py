"""What diffusers offers on a transformer, with cameras attached: each works as without them, or refuses clearly."""

import os
import socket
from multiprocessing import get_context

import pytest
import torch
from diffusers import ContextParallelConfig, FirstBlockCacheConfig, PyramidAttentionBroadcastConfig
from diffusers.hooks import apply_group_offloading

from ucpe.adapters import CameraAdapter, ReCamMaster, SanaWMCamera
from ucpe.adapters.parallel import token_share


@pytest.fixture(params=["wan", "sana-wm"])
def steered(request, randomise):
    """A scene of either model with its camera attached, and a function that runs it."""
    scene = request.getfixturevalue("scene" if request.param == "wan" else "world_model")
    kind, options = (CameraAdapter, {"compression": 2}) if request.param == "wan" else (SanaWMCamera, {})
    adapter = randomise(kind.for_transformer(scene.transformer, **options), 0.1).attach(scene.transformer)
    with torch.no_grad():
        yield scene, lambda cameras=None: scene.steered(adapter, cameras)


def test_layerwise_casting(steered):
    """Weights stored in bfloat16 and computed with in float32: near, and still steered."""
    scene, run = steered
    before = run()
    scene.transformer.enable_layerwise_casting(storage_dtype=torch.bfloat16, compute_dtype=torch.float32)
    after = run()
    assert any(parameter.dtype == torch.bfloat16 for parameter in scene.transformer.parameters())
    assert after.dtype == torch.float32 and (after - before).norm() < 0.05 * before.norm()
    assert (run(scene.cameras[::-1]) - after).abs().max() > 1e-3


@pytest.mark.parametrize("offload_type", ["block_level", "leaf_level"])
def test_group_offload(steered, offload_type):
    scene, run = steered
    before = run()
    options = {"num_blocks_per_group": 1} if offload_type == "block_level" else {}
    apply_group_offloading(
        scene.transformer,
        onload_device=torch.device("cpu"),
        offload_device=torch.device("cpu"),
        offload_type=offload_type,
        **options,
    )
    assert torch.equal(run(), before)


@pytest.mark.slow
def test_compiled_sana_wm(world_model, fisheye):
    """One graph a block. A mask of dark tokens is looked into by its softmax blocks, whose graph is then in parts."""
    adapter = SanaWMCamera.for_transformer(world_model.transformer).attach(world_model.transformer)
    dark = [camera.with_lens(fisheye) for camera in world_model.cameras]
    with torch.no_grad():
        expected = [world_model.steered(adapter, cameras) for cameras in (world_model.cameras, dark)]
        torch._dynamo.reset()
        world_model.transformer.compile_repeated_blocks(backend="eager", fullgraph=True)
        torch.testing.assert_close(world_model.steered(adapter), expected[0], atol=1e-4, rtol=1e-4)
        world_model.transformer.compile_repeated_blocks(backend="eager")
        torch.testing.assert_close(world_model.steered(adapter, dark), expected[1], atol=1e-4, rtol=1e-4)
    torch._dynamo.reset()


def test_first_block_cache_skips_blocks_and_forgets_between_videos(scene, randomise):
    adapter = randomise(CameraAdapter.for_transformer(scene.transformer, compression=2), 0.1).attach(scene.transformer)
    with torch.no_grad():
        expected = [scene.steered(adapter, cameras) for cameras in (scene.cameras, scene.cameras[::-1])]
        ran = []
        scene.transformer.blocks[1].attn1.register_forward_hook(lambda *_: ran.append(1))
        scene.transformer.enable_cache(FirstBlockCacheConfig(threshold=0.05))
        for cameras, reference in zip((scene.cameras, scene.cameras[::-1]), expected):
            with scene.transformer.cache_context("cond"):
                ran.clear()
                torch.testing.assert_close(scene.steered(adapter, cameras), reference)
                torch.testing.assert_close(scene.steered(adapter, cameras), reference)
                assert len(ran) == 1, "the second, equal step is taken from the cache"
            scene.transformer._reset_stateful_cache()  # as every pipeline does after a video


def test_attention_broadcast_reuses_attention_but_never_the_camera(scene, randomise):
    """The cached attention is the model's own: the branch is computed anew, and added once."""
    adapter = randomise(CameraAdapter.for_transformer(scene.transformer, compression=2), 0.1).attach(scene.transformer)
    with torch.no_grad():
        expected = scene.steered(adapter)
        scene.transformer.enable_cache(
            PyramidAttentionBroadcastConfig(
                spatial_attention_block_skip_range=2,
                spatial_attention_timestep_skip_range=(-1, 1001),
                spatial_attention_block_identifiers=("blocks",),
                current_timestep_callback=lambda: 500,
            )
        )
        for _ in range(3):
            torch.testing.assert_close(scene.steered(adapter), expected)


def test_sana_wm_has_no_cache_in_diffusers(world_model):
    """Should diffusers give it one, this says that it needs a look."""
    assert not hasattr(world_model.transformer, "enable_cache")


def test_sana_wm_is_not_split_between_processes(world_model):
    """Its recurrence runs over whole frames in order, and diffusers has no plan for it: enable_parallelism refuses."""
    assert world_model.transformer._cp_plan is None


def _run_parallel(rank, port, scene, make_adapters, cases, expected):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.accelerator.device_count = lambda: 1  # diffusers numbers accelerators, of which there are none here
    same = []
    try:
        torch.distributed.init_process_group("gloo")
        scene.transformer.enable_parallelism(config=ContextParallelConfig(ulysses_degree=2))
        for name, cameras in cases:
            adapter = make_adapters[name](scene.transformer).attach(scene.transformer)
            with torch.no_grad():
                output = scene.steered(adapter, cameras)
            same.append(torch.allclose(output, expected[name], atol=2e-5, rtol=1e-4))
            adapter.detach()
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    except BaseException as error:
        print(f"rank {rank}: {error!r}")
        os._exit(1)
    print(f"rank {rank}: {same}")
    os._exit(0 if same and all(same) else 1)


def test_two_processes_give_the_video_of_one(scene, randomise, fisheye):
    """Wan's tokens split between two processes: every placement, an odd head, a per-camera encoding, dark tokens."""

    def branch(**options):
        return lambda transformer: randomise(CameraAdapter.for_transformer(transformer, **options), 0.1)

    make_adapters = {
        "parallel": branch(compression=2),
        "pre": branch(compression=2, placement="pre"),
        "post": branch(compression=2, placement="post"),
        "one head": branch(heads=1, head_dim=24, orientation=False),
        "prope": branch(compression=2, encoding="prope"),
        "dark": branch(compression=2),
        "recammaster": lambda transformer: randomise(ReCamMaster.for_transformer(transformer), 0.1),
    }
    dark = [camera.with_lens(fisheye) for camera in scene.cameras]
    cases = [(name, dark if name == "dark" else scene.cameras) for name in make_adapters]
    expected = {}
    for name, cameras in cases:
        adapter = make_adapters[name](scene.transformer).attach(scene.transformer)
        with torch.no_grad():
            expected[name] = scene.steered(adapter, cameras)
        adapter.detach()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = get_context("fork")
    arguments = (port, scene, make_adapters, cases, expected)
    workers = [context.Process(target=_run_parallel, args=(rank, *arguments)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(900)
    assert [worker.exitcode for worker in workers] == [0, 0]


def test_another_split_is_refused(scene):
    transformer = scene.transformer
    transformer._parallel_config = type("Config", (), {"context_parallel_config": type("Inner", (), {})()})()
    assert token_share(transformer, 18, 18) is None
    with pytest.raises(ValueError, match=r"keeps the processes .* install diffusers 0\.42"):
        token_share(transformer, 18, 9)
