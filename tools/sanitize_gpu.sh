#!/usr/bin/env bash
# Runs part of the GPU tests under compute-sanitizer. Needs a GPU; takes some minutes.
#   tools/sanitize_gpu.sh [build folder, default build]
set -euo pipefail
cd "$(dirname "$0")/.."
tests=${1:-build}/tests/attnc_test_gpu
check() { compute-sanitizer --tool "$1" --error-exitcode 1 "$tests" "$2"; }
check memcheck 'strides*,fully masked rows*,empty problems*,tensors without elements*,block masks built*'
check memcheck 'gradients through lse*,rows and columns of blocks*,only the bias*,gradients of captures of empty*'
# racecheck does not follow an mbarrier by which one lane answers for its warp, as those of sm90 do.
check racecheck 'kernels without asynchronous barriers*,backward kernels without asynchronous barriers*'
# initcheck: operands, workspace and results are written before they are read.
check initcheck 'gradients through lse*,backward kernels without asynchronous barriers*'
