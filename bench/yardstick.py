"""Measure the original's Python guest component under plain wasmtime.

usage: yardstick.py CACHE.cwasm     (with wasmtime and the component installed)

Prints {"name": ..., ID: {"p50_ms": ..., "p95_ms": ..., "p99_ms": ..., "n": ...}}
where ID is the benchmark of maf-sandbox that does the same.
"""

import importlib.resources
import json
import math
import os
import sys
import time

from wasmtime import Config, Engine, Store, WasiConfig, component

EXECUTOR = "hyperlight:sandbox/executor"
TOOLS = "hyperlight:sandbox/tools"
LOOP = "total = 0\nfor i in range(10**6):\n    total += i\nprint(total)"


def load(engine, cache):
    """The component, compiled; compiling can take two minutes and is done once."""
    if os.path.exists(cache):
        return component.Component.deserialize_file(engine, cache)
    print("yardstick: compiling the component, up to two minutes", file=sys.stderr)
    wasm = importlib.resources.files("python_guest") / "resources" / "python-sandbox.wasm"
    compiled = component.Component.from_file(engine, str(wasm))
    with open(cache + ".new", "wb") as f:
        f.write(compiled.serialize())
    os.replace(cache + ".new", cache)
    return compiled


def instantiate(engine, compiled):
    """A fresh instance: a function from code to what it printed."""
    store = Store(engine)
    store.set_wasi(WasiConfig())
    store.set_wasi_http()
    linker = component.Linker(engine)
    linker.add_wasip2()
    linker.add_wasi_http()
    with linker.root() as root, root.add_instance(TOOLS) as tools:
        tools.add_func("dispatch", lambda _store, *_args: '{"error":"no tools"}')
    instance = linker.instantiate(store, compiled)
    index = instance.get_export_index(store, "run", instance.get_export_index(store, EXECUTOR))
    run = instance.get_func(store, index)
    return lambda code: run(store, code).__dict__


def expect(result, stdout):
    if result["stdout"] != stdout:
        sys.exit(f"yardstick: unexpected result {result}")


def measure(n, f):
    times = []
    for _ in range(n):
        start = time.perf_counter()
        f()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    rank = {p: times[max(1, math.ceil(p / 100 * n)) - 1] for p in (50, 95, 99)}
    return {**{f"p{p}_ms": round(v, 4) for p, v in rank.items()}, "n": n}


def main():
    engine = Engine(Config())
    compiled = load(engine, sys.argv[1])
    run = instantiate(engine, compiled)
    expect(run(LOOP), "499999500000\n")
    for _ in range(20):
        run("print(6*7)")
    numbers = {
        "name": "guest component under wasmtime, no VM",
        "N1": measure(1000, lambda: expect(run("print(6*7)"), "42\n")),
        "N3.fresh": measure(30, lambda: expect(instantiate(engine, compiled)("print(6*7)"), "42\n")),
        "loop": measure(7, lambda: run(LOOP)),
    }
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
