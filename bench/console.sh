#!/usr/bin/env bash
# Measures the operator console beside the Python program that it replaces, in
# one run: start, list, first paint, keys among ten thousand sandboxes; then how
# long the console itself takes for a frame with as many.
#
#     bench/console.sh [-n TIMES]
#
# The first time it makes a Python venv in the cache folder and installs the
# Python program into it. PYTHON names the interpreter, 3.12 or newer; without
# one only our program is measured, and that is said.
set -euo pipefail
umask 077
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

peer=0.5.0
cache=${MAF_SANDBOX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/maf-sandbox}/console
venv=$cache/venv-$peer

python() { # prints an interpreter that is new enough
	local candidate
	for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 "$HOME"/.pyenv/versions/3.1[2-9]*/bin/python3; do
		if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
			echo "$candidate"
			return
		fi
	done
	return 1
}

install() {
	local interpreter
	if ! interpreter=$(python); then
		echo "SKIPPED: the Python program: needs Python 3.12 or newer (PYTHON names one)" >&2
		return 1
	fi
	echo "console: installing maf-sandbox-tui $peer" >&2
	rm -rf -- "$venv"
	if ! { "$interpreter" -m venv "$venv" &&
		"$venv/bin/pip" install --quiet --disable-pip-version-check "maf-sandbox-tui==$peer" >&2; }; then
		echo "SKIPPED: the Python program: maf-sandbox-tui $peer cannot be installed" >&2
		return 1
	fi
	touch -- "$venv/ready"
}

args=()
if [[ -e $venv/ready ]] || install; then
	args=(-peer "$venv/bin/mst")
fi
go run ./internal/tools/consolebench "${args[@]}" "$@"
echo
go test -run '^$' -bench 'BenchmarkFrame' -benchtime 200x ./internal/console
