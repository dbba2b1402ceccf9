#!/usr/bin/env bash
# Builds attnc and does its main job once: compiles a mod to a CUDA kernel and runs attention with it, on the GPU if
# there is one, else with the CPU reference.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh build
cmake --build build --target attnc attnc_library attnc_shared # all that `cmake --install build` installs
set -x
build/attnc check dsl/mods/alibi.py
build/attnc mask dsl/mods/alibi.py --shape 256
build/attnc emit dsl/mods/alibi.py --stage cubin --kernel forward --arch sm_90a --head-dim 128 -o build/alibi.cubin
build/attnc run dsl/mods/alibi.py --random 1,8,2,512,512,128 --out build/alibi.safetensors
