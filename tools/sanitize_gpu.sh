#!/usr/bin/env bash
# Runs part of the GPU tests under compute-sanitizer: memcheck and racecheck. Needs a GPU; takes some minutes.
#   tools/sanitize_gpu.sh [build folder, default build]
set -euo pipefail
cd "$(dirname "$0")/.."
tests=${1:-build}/tests/attnc_test_gpu
subset='strides*,fully masked rows*,empty problems*,block masks built*'
for tool in memcheck racecheck; do
  compute-sanitizer --tool "$tool" --error-exitcode 1 --kernel-name regex:attnc "$tests" "$subset"
done
