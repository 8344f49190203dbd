#!/bin/sh
# Measures the yardstick of the benchmarks: the Python guest component of the
# original under wasmtime, in one process without any virtual machine. Prints
# its medians as JSON for
#
#     maf-sandbox bench --yardstick bench/yardstick.sh
#
# The first time it makes a Python venv in the cache folder and compiles the
# component, which can take two minutes; what it made is kept there.
# PYTHON names the interpreter for the venv.
set -eu
umask 077

cache=${MAF_SANDBOX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/maf-sandbox}/yardstick
here=$(cd "$(dirname "$0")" && pwd)
wasmtime=50.0.1 guest=0.7.0
venv=$cache/venv-$wasmtime-$guest

if [ ! -e "$venv/ready" ]; then
    echo "yardstick: installing wasmtime $wasmtime" >&2
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    # pip speaks on standard output, which is for the numbers.
    "$venv/bin/pip" install --quiet --disable-pip-version-check \
        "wasmtime==$wasmtime" "hyperlight-sandbox-python-guest==$guest" >&2
    touch "$venv/ready"
fi
exec "$venv/bin/python" "$here/yardstick.py" "$cache/component-$wasmtime-$guest.cwasm"
