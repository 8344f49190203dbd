"""JSON, regular expressions and strings: C code of the standard library."""

import json
import re


def work():
    rows = [{"id": i, "name": "n%d" % i, "tags": ["a", "b"], "x": i / 7} for i in range(8000)]
    again = json.loads(json.dumps(rows))
    text = " ".join("%s=%s;" % (r["name"], r["x"]) for r in again)
    return len(re.findall(r"n(\d+)=(\d+\.\d+);", text)), len(text.split())
