#!/usr/bin/env bash
# Installs what is missing (Debian and Ubuntu) and configures. Idempotent.
#   tools/setup.sh [build folder, default build]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}

# package -> a file or command that makes it unnecessary
need=()
missing() { need+=("$1"); }
command -v g++ >/dev/null || missing g++
command -v cmake >/dev/null || missing cmake
command -v ninja >/dev/null || missing ninja-build
command -v python3 >/dev/null || missing python3
compgen -G '/usr/lib/llvm-*/lib/libLLVMSupport.a' >/dev/null || missing llvm-dev
[ -e /usr/include/fmt/format.h ] || missing libfmt-dev
[ -e /usr/include/nlohmann/json.hpp ] || missing nlohmann-json3-dev
[ -e /usr/include/CLI/CLI.hpp ] || missing libcli11-dev
[ -d /usr/include/catch2 ] || missing catch2
[ -e /usr/include/httplib.h ] || missing libcpp-httplib-dev # for `attnc serve`, with pkg-config
command -v pkg-config >/dev/null || missing pkg-config

# NVRTC 13 and the headers of the driver API, from an installed toolkit or from the Python wheels.
toolkit=${CUDA_HOME:-/usr/local/cuda}
wheels=no
if ! compgen -G "$toolkit/lib64/libnvrtc.so.13*" >/dev/null || [ ! -e "$toolkit/include/nvrtc.h" ]; then
  compgen -G '.venv/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13' >/dev/null || wheels=yes
fi
if [ $wheels = yes ] && ! python3 -c 'import ensurepip' 2>/dev/null; then missing python3-venv; fi

if [ ${#need[@]} -gt 0 ]; then
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${need[@]}"
fi
if [ $wheels = yes ]; then
  python3 -m venv .venv
  # The version with which kernels were measured.
  .venv/bin/pip install --quiet 'nvidia-cuda-nvrtc>=13.0,<13.1' 'nvidia-cuda-runtime>=13.0,<13.1'
fi

cmake -S . -B "$build" -G Ninja >/dev/null
