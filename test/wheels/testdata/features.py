import json

import numpy as np
from numpy._core._multiarray_umath import __cpu_baseline__, __cpu_dispatch__, __cpu_features__

config = np.show_config(mode="dicts")
print(json.dumps({
    "features": {k: bool(v) for k, v in __cpu_features__.items()},
    "baseline": list(__cpu_baseline__),
    "dispatch": list(__cpu_dispatch__),
    "found": config["SIMD Extensions"].get("found", []),
    "not found": config["SIMD Extensions"].get("not found", []),
}, sort_keys=True))
