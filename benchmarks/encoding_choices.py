"""What the sources of RoRE, RayPE and URoPE leave open, as contestants: the side that we did not take.

choice=benchmarks.encoding_choices
ucpe bench encodings --quick --seeds 1 --contestants rore raype urope --reference rore -o choices \\
    --encoding $choice:RoRECamera --encoding $choice:RoRESlow --encoding $choice:RoRERandom \\
    --encoding $choice:RayPECamera --encoding $choice:RayPELinear --encoding $choice:URoPEFar
"""

import torch
from torch import nn

from ucpe.bench.camera_encodings import Anchor, ModelShape, RayPE, RoRE, URoPE
from ucpe.encodings import camera_operator


class RoRECamera(RoRE):
    """Rays in the frame of the first camera instead of its upright one."""

    anchor: Anchor = "camera"


class RoRESlow(RoRE):
    """Frequencies that start from 2 rad down instead of 8."""

    def __init__(self, shape: ModelShape):
        super().__init__(shape)
        _scale(self.layers, 1 / 4)


class RoRERandom(RoRE):
    """Frequencies that start at random, over all components at once, with a deviation of 1 rad."""

    def __init__(self, shape: ModelShape):
        super().__init__(shape)
        for layer in self.layers:
            nn.init.normal_(layer.frequency)


class RayPECamera(RayPE):
    """Rays in the frame of the first camera instead of its upright one."""

    anchor: Anchor = "camera"


class RayPELinear(RayPE):
    """One linear layer in E instead of two, as the identity with a strength of zero: the reciprocal product."""

    def __init__(self, shape: ModelShape):
        super().__init__(shape)
        identity = torch.eye(shape.head_dim, 7).index_fill(1, torch.tensor(6), 0).repeat(shape.heads, 1)
        for layer in self.layers:
            for name in ("eq", "ek"):
                linear = nn.Linear(7, shape.width, bias=False)
                linear.weight.data.copy_(identity)
                setattr(layer, name, linear)
            for strength in (layer.alpha_q, layer.alpha_k):
                nn.init.zeros_(strength)


class URoPEFar(URoPE):
    """Depths of 2, 4 and 8 instead of 1, 2 and 4."""

    def _camera_operator(self, encoding, lens, c2w, frame="paper"):
        if encoding != "urope":
            return super()._camera_operator(encoding, lens, c2w, frame)
        shape = self.shape
        sizes = (shape.rows, shape.columns, shape.head_dim)
        kind = torch.get_default_dtype()
        return camera_operator(encoding, lens, c2w, *sizes, heads=shape.heads, depths=(2.0, 4.0, 8.0), dtype=kind)


def _scale(layers: nn.ModuleList, factor: float) -> None:
    with torch.no_grad():
        for layer in layers:
            layer.frequency.mul_(factor)
