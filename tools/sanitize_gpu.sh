#!/usr/bin/env bash
# Runs part of the GPU tests under compute-sanitizer. Needs a GPU; takes some minutes.
#   tools/sanitize_gpu.sh [build folder, default build]
set -euo pipefail
cd "$(dirname "$0")/.."
tests=${1:-build}/tests/attnc_test_gpu
compute-sanitizer --tool memcheck --error-exitcode 1 "$tests" 'strides*,fully masked rows*,empty problems*,tensors without elements*,block masks built*'
compute-sanitizer --tool racecheck --error-exitcode 1 "$tests" 'kernels without asynchronous barriers*'
