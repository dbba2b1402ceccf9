#!/usr/bin/env bash
# Runs some of the GPU tests under compute-sanitizer. Needs a GPU; takes some minutes.
#   tools/sanitize_gpu.sh [build folder, default build]
set -euo pipefail
cd "$(dirname "$0")/.."
tests=${1:-build}/tests/attnc_test_gpu
check() { compute-sanitizer --tool "$1" --error-exitcode 1 "$tests" "$2"; }
check memcheck 'strides*,fully masked rows*,empty problems*,tensors without elements*,block masks built*'
check memcheck 'gradients through lse*,rows and columns of blocks*,only the bias*,gradients of captures of empty*'
# racecheck does not understand an mbarrier on which one lane arrives for its warp, as in sm90 kernels.
check racecheck 'kernels without asynchronous barriers*,backward kernels without asynchronous barriers*'
# initcheck: operands, workspace and results must be written before they are read.
check initcheck 'gradients through lse*,backward kernels without asynchronous barriers*'
