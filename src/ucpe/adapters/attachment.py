"""Putting an adapter into a transformer and taking it out again; the camera of a call."""

from __future__ import annotations

import math
import os
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

import torch
from diffusers.configuration_utils import ConfigMixin
from diffusers.models.modeling_utils import ModelMixin
from huggingface_hub import hf_hub_download
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ucpe.adapters.backbones import Backbone, TokenGrid, backbone_of
from ucpe.adapters.condition import CameraCondition
from ucpe.adapters.parallel import TokenShare, token_share
from ucpe.encodings import Operator
from ucpe.files import commit
from ucpe.reading import read_json_object
from ucpe.trajectories import Trajectory

AdapterType = TypeVar("AdapterType", bound="Adapter")

TUNED_FILE = "tuned_transformer.safetensors"
"""Weights of the transformer that were trained along with an adapter, by their names there."""

PUSH_OPTIONS = ("repo_id", "commit_message", "private", "create_pr", "token")
"""Options of diffusers' `push_to_hub` that `save_pretrained` takes too."""

_ATTACHED: WeakKeyDictionary[nn.Module, ref[Adapter]] = WeakKeyDictionary()


class Adapter(ModelMixin, ConfigMixin):  # type: ignore[misc]
    """Weights beside a video transformer that let a camera steer it.

    An adapter is never a submodule of the transformer: it listens through forward hooks, and a transformer saved, moved
    or fine-tuned while one is attached is saved, moved or fine-tuned without it. While attached, every call of
    the transformer needs a camera, unless it was attached with `required=False`:

        condition = adapter.encode(trajectories, height=480, width=832)
        with adapter.camera(condition):
            transformer(...)
    """

    tunes_transformer = False
    """Whether this method also trains weights of the transformer, which are then saved and loaded with it."""

    def __init__(self) -> None:
        super().__init__()
        self._backbone: Backbone | None = None
        self._handles: list[Any] = []
        self._active: _Camera | None = None
        self._running: _Camera | None = None
        self._required, self._idle = True, False
        self._checkpoint: Callable[..., Any] | None = None
        self._untuned: dict[str, Tensor] = {}
        self._tuned: dict[str, Tensor] = {}

    @classmethod
    def for_transformer(cls: type[AdapterType], transformer: nn.Module, **options: Any) -> AdapterType:
        """A fresh adapter that fits a transformer, with options of the constructor; its sizes are the transformer's."""
        backbone = backbone_of(transformer)
        strides = {"temporal_stride": backbone.temporal_stride, "spatial_stride": backbone.spatial_stride}
        return cls(**{**backbone.facts, **strides, **options})

    def encode(self, cameras: Trajectory | Sequence[Trajectory], height: int, width: int) -> CameraCondition:
        """The cameras of a batch of clips, one trajectory of all video frames each, for a video of that size."""
        cameras = [cameras] if isinstance(cameras, Trajectory) else list(cameras)
        grid = self._token_grid(cameras, height, width)
        clips = [self.encode_clip(camera, grid, height, width) for camera in cameras]
        stack: dict[str, Any] = {"operator": Operator.stack, "features": torch.stack, "rays": torch.stack}
        parts = {name: stack[name]([clip[name] for clip in clips]) for name in clips[0]}
        return CameraCondition(grid, len(clips), **parts)

    @abstractmethod
    def encode_clip(self, camera: Trajectory, grid: TokenGrid, height: int, width: int) -> dict[str, Any]:
        """The operator, features and rays of a clip's `CameraCondition`, those that this adapter uses."""

    @abstractmethod
    def _hook(self, backbone: Backbone) -> list[Any]:
        """Register this adapter's hooks on the backbone's modules and return their handles."""

    def trainable_parameters(self, transformer: nn.Module) -> list[nn.Parameter]:
        """Every parameter that training this adapter changes: its own, and those of the transformer it tunes."""
        return [*self.parameters(), *(parameter for _, parameter in self.tuned_parameters(transformer))]

    def tuned_parameters(self, transformer: nn.Module) -> list[tuple[str, nn.Parameter]]:
        """Parameters of the transformer, by name, that are trained along with this adapter."""
        return []

    def set_trainable(self, transformer: nn.Module) -> None:
        """Require gradients of exactly the trainable parameters, of adapter and transformer."""
        transformer.requires_grad_(False)
        for parameter in self.trainable_parameters(transformer):
            parameter.requires_grad_(True)

    def attach(self: AdapterType, transformer: nn.Module, required: bool = True) -> AdapterType:
        """Let this adapter act on every later call of the transformer, until `detach`.

        A call without a camera is an error; with `required=False` it is the transformer's own, as if nothing were
        attached (an error still where the adapter changed the transformer's weights).
        """
        backbone = backbone_of(transformer)
        transformer = backbone.transformer
        if self._backbone is not None:
            raise ValueError("this adapter is attached already; detach() it first")
        if transformer in _ATTACHED:
            raise ValueError(
                f"the transformer has a {type(_ATTACHED[transformer]()).__name__} attached already; detach() that first"
            )
        self._check_fit(backbone)
        self._tune(transformer)
        self._backbone, self._required = backbone, required
        self._handles = [
            transformer.register_forward_pre_hook(self._open_call, with_kwargs=True),
            transformer.register_forward_hook(self._close_call, always_call=True),
            *self._hook(backbone),
        ]
        _ATTACHED[transformer] = ref(self)
        return self

    def detach(self) -> None:
        """Take this adapter out of its transformer, which is then as it was before `attach`."""
        if self._backbone is None:
            raise ValueError("this adapter is not attached")
        transformer = self._backbone.transformer
        for handle in self._handles:
            handle.remove()
        del _ATTACHED[transformer]
        self._handles, self._backbone = [], None
        self._untune(transformer)

    def save_pretrained(  # type: ignore[override]
        self, save_directory: str | os.PathLike[str], **kwargs: Any
    ) -> None:
        """Write config.json and safetensors to a directory, and the weights of the transformer that were tuned.

        With `push_to_hub=True` all of it is uploaded too, to `repo_id` or a repository named like the directory.
        """
        push = kwargs.pop("push_to_hub", False)
        upload = {name: kwargs.pop(name) for name in PUSH_OPTIONS if name in kwargs}
        target = Path(save_directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as temporary:
            staged = Path(temporary) / target.name
            super().save_pretrained(staged, **kwargs)
            tuned = self._tuned
            if self._backbone is not None:
                tuned = {name: value.detach() for name, value in self.tuned_parameters(self._backbone.transformer)}
            if tuned:
                save_file({name: value.contiguous().cpu() for name, value in tuned.items()}, staged / TUNED_FILE)
            target.mkdir(exist_ok=True)
            for file in staged.iterdir():
                commit(file, target / file.name)
        if push:
            self.push_to_hub(**{"repo_id": target.name, **upload})

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls: type[AdapterType], name: str | os.PathLike[str], **kwargs: Any
    ) -> AdapterType:
        """Read an adapter from a directory or the hub."""
        try:
            check_blocks(Path(name, kwargs.get("subfolder") or ""))
            adapter = super().from_pretrained(name, **kwargs)
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"{name}: not a whole adapter ({error})") from error
        if cls.tunes_transformer:
            adapter._tuned = read_tuned(name, kwargs)
        check_weights({**adapter.state_dict(), **adapter._tuned}, name)
        return adapter

    @contextmanager
    def camera(self, condition: CameraCondition) -> Iterator[None]:
        """Use these cameras for calls of the transformer inside the `with` block, and for their backward passes."""
        before = self._active
        self._active = _Camera(condition)
        try:
            yield
        finally:
            self._active = before

    @torch.no_grad()
    def _tune(self, transformer: nn.Module) -> None:
        """Put tuned weights, where this adapter has any, in place of the transformer's, which are kept."""
        parameters = dict(self.tuned_parameters(transformer))
        if self._tuned and self._tuned.keys() != parameters.keys():
            raise ValueError(
                "the tuned weights of this adapter are for another transformer: "
                f"{listed('missing', parameters.keys() - self._tuned.keys())}; "
                f"{listed('unexpected', self._tuned.keys() - parameters.keys())}"
            )
        self._untuned = {name: _kept(parameter) for name, parameter in parameters.items()}
        for name, value in self._tuned.items():
            parameters[name].copy_(value)

    @torch.no_grad()
    def _untune(self, transformer: nn.Module) -> None:
        """Give the transformer its own weights back, and keep the tuned ones."""
        parameters = dict(self.tuned_parameters(transformer))
        self._tuned = {name: _kept(parameter) for name, parameter in parameters.items()}
        for name, value in self._untuned.items():
            parameters[name].copy_(value)
        self._untuned = {}

    def _check_fit(self, backbone: Backbone) -> None:
        check_fit(self.config, backbone)

    def _token_grid(self, cameras: Sequence[Trajectory], height: int, width: int) -> TokenGrid:
        """Tokens of a video, after checking that trajectories and size make whole ones."""
        if not cameras:
            raise ValueError("no trajectory to encode: give one for each clip of the batch")
        frames = len(cameras[0])
        for index, camera in enumerate(cameras):
            if len(camera) != frames:
                raise ValueError(
                    f"the clips of a batch have equally many frames: trajectory 0 has {frames}, trajectory {index} has "
                    f"{len(camera)}"
                )
        _, *spatial = self.config["patch_size"]
        sizes = []
        for name, value, patch in (("height", height, spatial[0]), ("width", width, spatial[1])):
            token = self.config["spatial_stride"] * patch
            if value < token or value % token:
                raise ValueError(f"{name} must be a multiple of {token} pixels, a token's size, got {value}")
            sizes.append(value // token)
        return TokenGrid(len(self._token_cameras(cameras[0])), *sizes)

    def _token_cameras(self, camera: Trajectory) -> Trajectory:
        """The cameras of a clip's frames of tokens: of the first latent frame of each."""
        return camera.latent_frames(self.config["temporal_stride"])[:: self.config["patch_size"][0]]

    def __getstate__(self) -> dict[str, Any]:
        """A copy of an adapter is attached to nothing."""
        unattached: dict[str, Any] = {
            "_backbone": None,
            "_handles": [],
            "_active": None,
            "_running": None,
            "_idle": False,
            "_untuned": {},
        }
        return {**self.__dict__, **unattached}

    def _open_call(self, transformer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._idle = self._active is None and not (self._required or self.tunes_transformer)
        if self._idle:
            return
        if self._active is None:
            raise ValueError(
                f"a {type(self).__name__} is attached to this transformer but no camera is set: call it inside "
                "`with adapter.camera(adapter.encode(trajectories, height, width)):`, or adapter.detach() first"
            )
        assert self._backbone is not None
        self._active.condition.check(*self._backbone.call_shape(args, kwargs))
        self._running = self._active
        if torch.is_grad_enabled() and getattr(transformer, "gradient_checkpointing", False):
            self._checkpoint = transformer._gradient_checkpointing_func  # type: ignore[assignment]
            transformer._gradient_checkpointing_func = partial(  # type: ignore[assignment]
                self._checkpoint_with_camera, self._checkpoint, self._running
            )

    def _close_call(self, transformer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._running, self._idle = None, False
        if self._checkpoint is not None:
            transformer._gradient_checkpointing_func = self._checkpoint  # type: ignore[assignment]
            self._checkpoint = None

    def _checkpoint_with_camera(
        self, checkpoint: Callable[..., Any] | None, camera: _Camera, block: nn.Module, *args: Any
    ) -> Any:
        """Checkpoint a block so that its second run, in the backward pass, sees the same camera as the first."""

        def run(*inputs: Any) -> Any:
            before, self._running = self._running, camera
            try:
                return block(*inputs)
            finally:
                self._running = before

        assert checkpoint is not None
        return checkpoint(run, *args)

    def _condition(self, tokens: Tensor, weight: Tensor) -> CameraCondition:
        """The condition of the running call on the device of its tokens, where the adapter's weights go too.

        Asks a single weight of the calling block where they are: all blocks then share one compiled graph.
        """
        if self._running is None:
            raise ValueError("a block ran outside a call of its transformer, so which camera it belongs to is unknown")
        if weight.device != tokens.device:
            self.to(tokens.device)  # type: ignore[arg-type]
        return self._running.on(tokens.device)

    def _share(self, tokens: Tensor, condition: CameraCondition) -> TokenShare | None:
        """Which of the video's tokens these are, under context parallelism; None for all of them."""
        assert self._backbone is not None
        return token_share(self._backbone.transformer, math.prod(condition.grid), tokens.shape[1])


class _Camera:
    """A condition that is moved to a device once, however many blocks and steps ask for it."""

    def __init__(self, condition: CameraCondition):
        self.condition = condition

    def on(self, device: torch.device) -> CameraCondition:
        if device != self.condition.device:
            self.condition = self.condition.to(device)
        return self.condition


def check_fit(config: Mapping[str, Any], backbone: Backbone) -> None:
    """Raise ValueError unless an adapter of a configuration is made for a transformer."""
    for name, value in backbone.facts.items():
        expected = config.get(name)
        if (tuple(expected) if isinstance(expected, list) else expected) != value:
            raise ValueError(f"this adapter is for a transformer with {name} {expected}, this one has {value}")


def check_weights(weights: Mapping[str, Tensor], where: str | os.PathLike[str]) -> None:
    """Raise a ValueError naming the weights that are missing (left on the meta device) or not finite."""
    missing = [name for name, value in weights.items() if value.is_meta]
    if missing:
        raise ValueError(f"{where} lacks weights: {listed('missing', missing)}")
    wrong = [name for name, value in weights.items() if not torch.isfinite(value).all()]
    if wrong:
        raise ValueError(f"{where} holds NaN or infinite weights, and would make no picture: {listed('in', wrong)}")


def check_blocks(folder: Path) -> None:
    """Raise ValueError if config.json names blocks that the weights beside it lack."""
    weights = sorted(folder.glob("*.safetensors"))
    if not weights or not (folder / "config.json").is_file():
        return
    asked = read_json_object(folder / "config.json").get("num_blocks")
    found = set()
    for file in weights:
        with safe_open(file, framework="pt") as tensors:
            found |= {name.split(".")[1] for name in tensors.keys() if name.startswith("blocks.")}  # noqa: SIM118
    if found and isinstance(asked, int) and asked > len(found):
        raise ValueError(f"config.json says {asked} blocks, and there are weights of {len(found)}")


def read_tuned(name: str | os.PathLike[str], options: dict[str, Any]) -> dict[str, Tensor]:
    """Weights of the transformer that were saved with an adapter in a folder or on the hub; none if there are none."""
    file = Path(name, options.get("subfolder") or "", TUNED_FILE)
    if not Path(name).is_dir():
        names = ("subfolder", "revision", "token", "cache_dir", "local_files_only")
        chosen = {option: options[option] for option in names if option in options}
        file = Path(hf_hub_download(str(name), TUNED_FILE, **chosen))
    return load_file(file) if file.exists() else {}


def absolute_poses(camera: Trajectory, gravity: bool) -> Trajectory:
    """Poses as the absolute encodings take them: relative to the first frame, or gravity-aligned with no first yaw."""
    return camera.zero_first_yaw() if gravity else camera.relative_to_first()


def listed(title: str, names: Iterable[str], most: int = 12) -> str:
    """Names for an error message, the first of them if there are many."""
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} {title}" + (f" ({', '.join(names[:most])}{more})" if names else "")


def _kept(parameter: Tensor) -> Tensor:
    """A copy in main memory (of nothing, on the meta device)."""
    return parameter.detach().clone() if parameter.is_meta else parameter.detach().cpu().clone()
