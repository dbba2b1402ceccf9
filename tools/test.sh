#!/usr/bin/env bash
# Builds attnc and runs its tests. Tests that need a GPU are skipped if there is none.
#   tools/test.sh [--torch [VERSION...]]
# With --torch, tests of the Python package run in an environment with PyTorch. It is made during the build (about 5 GB)
# and kept. If making it takes more than ten minutes, these tests are skipped, as without --torch.
# With versions of PyTorch, such as 2.6.0 2.15.0, only these tests run, once for each. What passed is kept in
# tests/python/versions.jsonl. An environment of a version takes 1 GB if pip finds PyTorch's index of wheels for the CPU.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=${XDG_CACHE_HOME:-$HOME/.cache}/attnc-test
ready() { "$1/bin/python3" -c 'import torch, transformers, safetensors' 2>/dev/null; }
make_environment() { # FOLDER, then what pip installs
  local folder=$1
  shift
  ready "$folder" && return
  rm -rf "$folder"
  python3 -m venv "$folder" && timeout 600 nice "$folder/bin/pip" install --quiet "$@"
}
make_version() { # of PyTorch
  local folder=$environment-$1
  ready "$folder" && return
  make_environment "$folder" --retries 0 --timeout 20 --index-url https://download.pytorch.org/whl/cpu "torch==$1" ||
    make_environment "$folder" "torch==$1"
  "$folder/bin/pip" install --quiet transformers safetensors numpy
}
# Kernels are compiled with the newest NVRTC as well, if pip finds it.
[ -e build/nvrtc ] || timeout 200 python3 -m pip install --quiet --no-deps --target build/nvrtc 'nvidia-cuda-nvrtc<14' ||
  echo "no other NVRTC"
tools/setup.sh build
if [ "${1:-}" = --torch ] && [ $# -gt 1 ]; then
  cmake --build build --target attnc attnc_shared
  pythons=()
  for version in "${@:2}"; do
    make_version "$version"
    pythons+=("$environment-$version/bin/python3")
  done
  exec python3 tests/python/versions.py --library build/libattnc.so --command build/attnc "${pythons[@]}"
fi
# For the check of the sources' layout; where there is none, that check is skipped.
if ! command -v clang-format-14 >/dev/null && command -v apt-get >/dev/null; then
  $([ "$(id -u)" = 0 ] || echo sudo) apt-get install -y -qq --no-install-recommends clang-format-14 >/dev/null 2>&1 || true
fi
python3 docs/site/build.py --install >build/docs.log 2>&1 || echo "no environment for the site: $(tail -n 1 build/docs.log)"
if [ "${1:-}" = --torch ]; then
  make_environment "$environment" torch==2.11.0 transformers==5.17.0 safetensors numpy matplotlib==3.11.2 \
    >build/torch.log 2>&1 & # while the compiler runs
  making=$!
  cmake --build build
  wait "$making" || echo "no environment with PyTorch: $(tail -n 1 build/torch.log)"
  ready "$environment" && cmake -DATTNC_TEST_PYTHON="$environment/bin/python3" build >/dev/null
else
  cmake --build build
fi
ctest --test-dir build --output-on-failure -j "$(nproc)"
