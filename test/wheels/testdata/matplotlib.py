import hashlib
import io

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

fig, axes = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
x = np.linspace(0, 10, 500)
axes[0, 0].plot(x, np.sin(x), label=r"$\sin(x)$")
axes[0, 0].plot(x, np.exp(-x / 3), "--", label="decay")
axes[0, 0].legend()
axes[0, 0].set_title("Zürich, Ελλάς: $\\int_0^1 x^2$")
axes[0, 1].bar(list("abc"), [3, 1, 2])
axes[1, 0].imshow(np.outer(np.sin(x), np.cos(x)))
axes[1, 1].scatter(np.cos(x), np.sin(x), c=x)
out = io.BytesIO()
fig.savefig(out, format="png")
png = out.getvalue()
print(len(png), png[:8], hashlib.sha256(png).hexdigest())
out = io.StringIO()
with matplotlib.rc_context({"svg.hashsalt": "s"}):
    fig.savefig(out, format="svg", metadata={"Date": None})
print(len(out.getvalue()), hashlib.sha256(out.getvalue().encode()).hexdigest())
