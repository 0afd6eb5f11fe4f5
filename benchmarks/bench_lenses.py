"""Speed of every lens: construction, and the rays of a 480 x 832 image as a multiple of the pinhole's."""

import time

import torch

from ucpe.lenses import (
    EUCM,
    UCM,
    BrownConrady,
    DoubleSphere,
    Equirectangular,
    KannalaBrandt,
    Lens,
    Mei,
    OmniStereo,
    Pinhole,
)

LENSES = {
    "pinhole": Pinhole(xfov=100),
    "ucm": UCM(xfov=180, xi=2.0),
    "eucm": EUCM(xfov=190, alpha=0.6, beta=1.1),
    "double_sphere": DoubleSphere(xfov=190, xi=-0.2, alpha=0.6),
    "brown_conrady": BrownConrady(xfov=100, k1=-0.2, k2=0.03),
    "brown_conrady[tangential]": BrownConrady(xfov=80, k1=-0.2, k2=0.03, p1=0.01, p2=-0.02),
    "brown_conrady[border]": BrownConrady(pinhole_xfov=100, k1=-0.2, k2=-0.05, p1=0.001),
    "mei": Mei(xfov=150, xi=1.5, k1=0.1, k2=-0.2, p1=1e-3, p2=2e-3),
    "kannala_brandt": KannalaBrandt(xfov=180, k1=0.02, k2=-0.01, k3=0.002, k4=-0.001),
    "equirectangular": Equirectangular(),
    "omni_stereo": OmniStereo(0.064),
}


def best(run, repeats: int = 5) -> float:
    """Smallest CPU time in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(1e3 * (time.process_time() - start))
    return min(times)


def main() -> None:
    torch.set_num_threads(1)
    pinhole = best(lambda: LENSES["pinhole"].rays(480, 832))
    print(f"{'lens':<28}{'construct':>12}{'rays':>12}{'x pinhole':>12}")
    for name, lens in LENSES.items():
        rays = best(lambda lens=lens: lens.rays(480, 832))
        made = best(lambda lens=lens: Lens.to(lens, torch.float64))
        print(f"{name:<28}{made:>9.1f} ms{rays:>9.1f} ms{rays / pinhole:>12.1f}")


if __name__ == "__main__":
    main()
