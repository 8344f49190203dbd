import hashlib

import numpy as np


def digest(name, *arrays):
    h = hashlib.sha256()
    for a in arrays:
        a = np.ascontiguousarray(a)
        h.update(str((a.dtype, a.shape)).encode() + a.tobytes())
    print(name, h.hexdigest())


print(np.arange(10).sum())
r = np.random.default_rng(4)
a, b, v = r.standard_normal((150, 150)), r.standard_normal((150, 150)), r.standard_normal(100_003)
digest("matmul", a @ b, a.astype("f4") @ b.astype("f4"), (a + 1j * b) @ b)
digest("solve", np.linalg.solve(a, b), np.linalg.inv(a))
digest("decompositions", *np.linalg.qr(a), *np.linalg.svd(a), *np.linalg.eigh(a @ a.T), np.linalg.eigvals(a))
digest("fft", np.fft.fft(v), np.fft.rfft(v[:65536]), np.fft.fft2(a), np.fft.ifft(v + 1j))
ints = r.integers(-(10**9), 10**9, 100_003)
digest("sort", *(np.sort(x.astype(t)) for t in ("f8", "f4", "i8", "i4", "i2") for x in (v, ints)))
digest("argsort", np.argsort(v), np.argsort(ints, kind="stable"), np.partition(v, 1000), np.unique(ints % 997))
for f in (np.exp, np.log, np.sin, np.cos, np.tan, np.tanh, np.sqrt, np.arctan, np.expm1, np.cbrt):
    digest(f.__name__, f(np.abs(v)), f(np.abs(v).astype("f4")))
digest("power", np.abs(v) ** 1.7, np.hypot(v, v[::-1]), np.arctan2(v, v[::-1]), np.floor_divide(ints, 7))
digest("sums", v.sum(), v.mean(), v.std(), np.cumsum(v), a.sum(0), np.dot(v, v), np.einsum("ij,jk->ik", a, b))
digest("random", r.normal(size=1000), r.poisson(3, 1000), r.permutation(1000), r.choice(50, 20))
