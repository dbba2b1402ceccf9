#!/usr/bin/env python3
"""Builds libnatten of some Hopper kernels of NATTEN, without a GPU: the whole of it takes hours on few cores.

  python3 bench/peers/build_natten.py SOURCE BUILD [--python-include DIR] [--jobs N] [--head-dims N,N]

SOURCE: the unpacked sdist of NATTEN 0.21. Writes BUILD/natten, a package to import: bf16, head dims 64 and 128 if no others are given, causal on
no axis, on the first one, or on all, of the tiles that NATTEN takes unless it is told others; and its reference kernels of bf16.
Other kernels throw. The same command goes on where the last one stopped.
--python-include: headers of the Python that will import it. Needs torch, nvcc and ninja.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

import torch

FAMILIES = {"reference_fna": 84, "hopper_fna": 244, "hopper_fna_bwd": 292, "hopper_fmha": 10, "hopper_fmha_bwd": 10}  # kernels
SPACES = {"reference": "reference", "hopper_fna": "fna_hopper", "hopper_fna_bwd": "fna_hopper", "hopper_fmha": "fmha_hopper",
          "hopper_fmha_bwd": "fmha_hopper"}  # fmt: skip
KERNEL = re.compile(
    r"(?:reference_fna\dd(?:_backward)?_float(?:32)?|(?:reference|hopper)_fna\dd(?P<backward>_backward)?_bfloat16)(?:_\d+x\d+x(?P<width>\d+))?(?P<schedule>_coop|_pp)?"
    r"(?:_Q(?P<tiles>[\dx]+_KV[\dx]+))?_causal(?P<causal>[\dx]+)"
)
OF_BACKWARD = ("64_KV128", "8x8_KV16x8", "4x4x4_KV4x4x8")  # the tiles that it takes unless it is told others
DEFAULTS = (*OF_BACKWARD, "128_KV128", "16x8_KV16x8", "4x4x8_KV4x4x8")
HELPER = "std_tuple_to_cute_tuple"  # each source has one
TOGETHER = 4  # kernels in a file: headers take longer than a kernel
UNUSED = re.compile(r"&natten::((?:blackwell_\w+|na\dd_\w+|fmha_\w+))")
FLAGS = (
    "-std=c++17 -O3 --use_fast_math --expt-relaxed-constexpr --extended-lambda -DNDEBUG -gencode arch=compute_90a,code=sm_90a "
    "-Xcompiler -fPIC,-fno-strict-aliasing -Xfatbin -compress-all -DTORCH_API_INCLUDE_EXTENSION_H -DTORCH_EXTENSION_NAME=libnatten "
    "-DWITH_CUDA -DNATTEN_WITH_CUTLASS -DCUTLASS_ENABLE_TENSOR_CORE_MMA=1 -DNATTEN_WITH_HOPPER_FNA=1 -D_GLIBCXX_USE_CXX11_ABI=1"
)


def is_wanted(kernel, head_dims=("64", "128")):
    """Whether a kernel of this name is built."""
    found = KERNEL.fullmatch(kernel)
    if not found or found["width"] not in (None, *head_dims):
        return False
    causal = found["causal"].replace("x", "")
    if causal.lstrip("1").strip("0") or causal.count("1") not in (0, 1, len(causal)):
        return False
    if found["tiles"] is None:
        return True
    if found["backward"]:
        return found["tiles"] in OF_BACKWARD
    return found["tiles"] in DEFAULTS and found["schedule"] != "_pp"


def stubs(header, space, built):
    """Returns definitions of the kernels that a header declares and nobody builds."""
    found = re.findall(r"^(void (\w+)\([^;]*\));", header, re.MULTILINE)
    missing = [text for text, name in found if name not in built]
    body = "\n".join(f'{text} {{ throw std::runtime_error("not built"); }}' for text in missing)
    return f"namespace natten {{ namespace cuda {{ namespace {space} {{\n{body}\n}} }} }}\n"


def written(path, text):
    """Writes a file, unless it is as it should be: ninja looks at its time."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def sources(source, build, head_dims):
    """Makes the kernels' sources. Returns the files to compile. What launches them is one file, since headers take minutes."""
    generated, files, rest = build / "autogen", [], ""
    for family, kernels in FAMILIES.items():
        if not (generated / family).exists():
            command = [sys.executable, source / "scripts" / f"autogen_{family}.py", "--num-splits", str(kernels), "-o", build]
            subprocess.run(command, cwd=source, check=True)
            (generated / family).touch()
    for folder, space in SPACES.items():
        built, wanted = set(), []
        for file in sorted((generated / "src/cuda" / folder).glob("*.cu")):
            names = re.findall(r"^void (\w+)\(", file.read_text(), re.MULTILINE)
            if names and all(is_wanted(name, head_dims) for name in names):
                built.update(names)
                wanted.append(file)
        for i in range(0, len(wanted), TOGETHER):
            text = "".join(f'#include "{file}"\n' for file in wanted[i : i + TOGETHER])
            files.append(written(build / f"{folder}_{i // TOGETHER}.cu", text))
        include = f"natten_autogen/cuda/{folder}/kernels.h"
        header = (generated / "include" / include).read_text()
        head = "#include <ATen/ATen.h>\n#include <torch/extension.h>\n#include <stdexcept>\n#include <cute/tensor.hpp>\n"
        rest += f"{head}#include <{include}>\n{stubs(header, space, built)}"
        print(f"{folder}: {len(built)} kernels")
    without = '[](pybind11::args, pybind11::kwargs) { throw std::runtime_error("not built"); }'
    rest += UNUSED.sub(without, (source / "csrc/natten.cpp").read_text())
    for i, file in enumerate(sorted((source / "csrc/src").glob("*.cu"))):
        if file.name == "compute_delta.cu":  # has a class that the rest also has
            files.append(file)
        elif not re.match("blackwell|fna_|fmha", file.name):
            rest += f'#define {HELPER} {HELPER}_{i}\n#include "{file}"\n#undef {HELPER}\n'
    return [written(build / "rest.cu", rest), *files]


def ninja_text(files, source, build, include):
    root = pathlib.Path(torch.__file__).parent
    places = [build / "autogen/include", source / "csrc/include", source / "third_party/cutlass/include", root / "include",
              root / "include/torch/csrc/api/include", include]  # fmt: skip
    lines = [
        f"flags = {FLAGS} {' '.join(f'-I{place}' for place in places)}",
        "rule cu\n  command = nvcc $flags -c $in -o $out -MD -MF $out.d\n  depfile = $out.d\n  deps = gcc",
        f"rule so\n  command = nvcc -shared $in -o $out -L{root}/lib -lc10 -ltorch -ltorch_cpu -ltorch_python -lc10_cuda "
        "-ltorch_cuda -cudart shared",
    ]
    objects = [f"{build}/objects/{file.parent.name}-{file.stem}.o" for file in files]
    lines += [f"build {object}: cu {file}" for object, file in zip(objects, files)]
    return "\n".join([*lines, f"build {build}/natten/libnatten.so: so {' '.join(objects)}", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--python-include", default=sysconfig.get_paths()["include"], metavar="DIR")
    parser.add_argument("--jobs", default="1", metavar="N")
    parser.add_argument("--head-dims", default="64,128", metavar="N,N")
    options = parser.parse_args()
    options.build.mkdir(parents=True, exist_ok=True)
    files = sources(options.source, options.build, options.head_dims.split(","))
    shutil.copytree(options.source / "src/natten", options.build / "natten", dirs_exist_ok=True)
    written(options.build / "build.ninja", ninja_text(files, options.source, options.build, options.python_include))
    subprocess.run(["ninja", "-C", options.build, "-j", options.jobs], check=True)


if __name__ == "__main__":
    main()
