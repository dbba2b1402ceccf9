#!/usr/bin/env bash
# Builds attnc and runs its tests. Tests that need a GPU are skipped if there is none.
#   tools/test.sh [--torch]
# With --torch, tests of the Python package run in an environment with PyTorch. It is made during the build (about 5 GB)
# and kept. If making it takes more than ten minutes, these tests are skipped, as without --torch.
set -euo pipefail
cd "$(dirname "$0")/.."
environment=${XDG_CACHE_HOME:-$HOME/.cache}/attnc-test
ready() { "$environment/bin/python3" -c 'import torch, transformers, safetensors' 2>/dev/null; }
make_environment() {
  ready && return
  rm -rf "$environment"
  python3 -m venv "$environment" &&
    timeout 600 nice "$environment/bin/pip" install --quiet torch==2.11.0 transformers==5.17.0 safetensors numpy
}
tools/setup.sh build
# For the check of the sources' layout; where there is none, that check is skipped.
if ! command -v clang-format-14 >/dev/null && command -v apt-get >/dev/null; then
  $([ "$(id -u)" = 0 ] || echo sudo) apt-get install -y -qq --no-install-recommends clang-format-14 >/dev/null 2>&1 || true
fi
python3 docs/site/build.py --install >build/docs.log 2>&1 || echo "no environment for the site: $(tail -n 1 build/docs.log)"
if [ "${1:-}" = --torch ]; then
  make_environment >build/torch.log 2>&1 & # while the compiler runs
  making=$!
  cmake --build build
  wait "$making" || echo "no environment with PyTorch: $(tail -n 1 build/torch.log)"
  ready && cmake -DATTNC_TEST_PYTHON="$environment/bin/python3" build >/dev/null
else
  cmake --build build
fi
ctest --test-dir build --output-on-failure -j "$(nproc)"
