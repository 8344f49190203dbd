"""numpy: matrix product, FFT, sorting, reductions."""

import numpy as np


def work():
    rng = np.random.default_rng(1)
    a = rng.random((512, 512))
    b = a @ a
    c = np.fft.fft(rng.random(1 << 18))
    d = np.sort(rng.random(500_000))
    return float(b.sum() + abs(c).max() + d[0] + np.exp(a).mean())
