#!/usr/bin/env bash
# Tries the files of a release as their users would, on a machine without a GPU.
#   tools/release/try.sh [--bare] DIST
# --bare: on a bare Debian, as root. First the command runs there as it is. Then packages are installed that C and pip
# need, and at last attnc's own. With ATTNC_TRY_TORCH=PYTHON, a Python with torch, a script of FlexAttention also runs.
set -euo pipefail
bare=''
[ "$1" != --bare ] || { bare=yes && shift; }
dist=$(realpath "$1")
cd "$(dirname "$0")/../.."
version=$(basename "$dist"/attnc-*-linux-*.tar.gz | cut -d- -f2)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { echo "-- $(. /etc/os-release && echo "$PRETTY_NAME"): $1"; }
run_command() { # the command
  [[ $("$1" --version) == "attnc $version"* ]]
  "$1" run dsl/mods/alibi.py --random 1,4,2,128,128,64 --device cpu
}
run_program() { # a program
  "$1" | tee "$work/said"
  grep -q "as the definition$" "$work/said"
}

step "the tarball's command"
tar -xf "$dist/attnc-$version-linux-"*.tar.gz -C "$work"
prefix=$(echo "$work/attnc-$version-linux-"*)
example=$prefix/share/doc/attnc/tools/examples/grid.c
run_command "$prefix/bin/attnc"

step "the library's kernels, without NVRTC"
use_pack() { # the command
  ATTNC_NO_COMPILE=1 ATTNC_CACHE_MODE=off "$1" emit dsl/mods/causal.py --stage cubin --kernel forward --arch sm_90a \
    --head-dim 128 -o "$work/causal.cubin"
}
use_pack "$prefix/bin/attnc"
if [ -n "$bare" ]; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev cmake make pkg-config \
    python3-venv >"$work/log" 2>&1 || { tail "$work/log" && exit 1; }
fi

step "a program in C by the tarball and pkg-config"
build() { # PROGRAM, then options of the linker
  local flags
  read -ra flags < <(pkg-config --cflags --libs attnc-c)
  cc -std=c11 "$example" "${flags[@]}" "${@:2}" -ldl -lm -o "$work/$1"
}
(export PKG_CONFIG_PATH=$prefix/lib/pkgconfig && build by_pkg_config "-Wl,-rpath,$prefix/lib")
run_program "$work/by_pkg_config"

step "a program in C by the tarball and CMake"
mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(try LANGUAGES C)
find_package(attnc $version EXACT REQUIRED COMPONENTS c)
add_executable(by_cmake $example)
target_link_libraries(by_cmake PRIVATE attnc::c \${CMAKE_DL_LIBS} m)
END
cmake -S "$work/project" -B "$work/project" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$work/project" >/dev/null
run_program "$work/project/by_cmake"

step "the wheel in a new environment"
python3 -m venv "$work/environment"
"$work/environment/bin/pip" install --quiet --disable-pip-version-check "$dist/attnc-$version-py3-"*.whl numpy
run_command "$work/environment/bin/attnc"
use_pack "$work/environment/bin/attnc"
(cd "$work" && environment/bin/python3 - <<END)
import attnc, numpy
assert attnc.__version__ == "$version", attnc.__version__
q, k, v = numpy.random.default_rng(0).standard_normal((3, 2, 64, 32), numpy.float32)
out = attnc.attention("q_idx >= kv_idx", q[None], k[None], v[None])
weights = numpy.tril(numpy.exp(q @ k.mT / 32**0.5))
numpy.testing.assert_allclose(out[0], weights / weights.sum(-1, keepdims=True) @ v, atol=1e-5)
print("attnc.attention: as the definition")
END
if [ -n "${ATTNC_TRY_TORCH:-}" ]; then
  step "the wheel in a FlexAttention script, one import changed"
  "$ATTNC_TRY_TORCH" -m pip install --quiet --disable-pip-version-check --no-deps --target "$work/packages" \
    "$dist/attnc-$version-py3-"*.whl
  cat >"$work/flex.py" <<END
import sys, torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
q, k, v = torch.randn(3, 1, 2, 256, 32, generator=torch.Generator().manual_seed(0))
slopes = torch.tensor([0.5, 0.25])
mask = create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 256, 256, device="cpu")
out = flex_attention(q, k, v, lambda score, b, h, q_idx, kv_idx: score + slopes[h] * (kv_idx - q_idx), mask)
if len(sys.argv) > 1:
    torch.testing.assert_close(out, torch.load(sys.argv[1]))
    print("attnc.torch: as PyTorch's flex_attention")
torch.save(out, "out.pt")
END
  sed "s/^from torch[^ ]* import/from attnc.torch import/" "$work/flex.py" >"$work/changed.py"
  (cd "$work" && "$ATTNC_TRY_TORCH" flex.py && PYTHONPATH=packages "$ATTNC_TRY_TORCH" changed.py out.pt)
fi
[ -n "$bare" ] || exit 0

step "the Debian package"
apt-get install -y -qq --no-install-recommends "$dist/attnc_${version}_"*.deb >"$work/log" 2>&1 || { tail "$work/log" && exit 1; }
run_command attnc
build by_package
run_program "$work/by_package"
apt-get remove -y -qq attnc >"$work/log" 2>&1 || { tail "$work/log" && exit 1; }
[ ! -e /usr/bin/attnc ]
