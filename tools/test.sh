#!/usr/bin/env bash
# Builds attnc and runs its tests. Those that need a GPU skip where there is none.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh build
cmake --build build
ctest --test-dir build --output-on-failure -j "$(nproc)"
