#!/usr/bin/env python3
"""Packs the peers that are wheels for a machine without network (x86-64, Python 3.12, torch 2.11 for CUDA 13), and unpacks them.

  python3 bench/peers/bundle.py modules MODULES                 # compiles FlashInfer's kernels for decoding; optional
  python3 bench/peers/bundle.py pack FOLDER [--only NAMES] [--flashinfer MODULES] [--natten BUILD/natten]
  python3 bench/peers/bundle.py unpack SITE FOLDER...           # there; prints what to export

pack downloads FlashAttention-3 and -4, vLLM's, FlashMLA, cudnn.flex_attention, FlashInfer and the Triton kernel by pip, leaves out
what benchmarks do not load, and writes FOLDER/NAME.tar.xz.I-of-N, parts of at most --part MiB. NATTEN is packed if it was built.
unpack takes folders that have all parts of a name between them. cudnn also needs what fa4 has. `modules` needs flashinfer, nvcc
and ninja, and goes on where the last one stopped; BUILD is build_natten.py's.
"""

import argparse
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

PEERS = {
    "fa3": ["fa3-fwd==0.0.3"],
    "vllm": ["vllm==0.33.0"],
    "flashmla": ["sgl-flash-mla==1.0.0"],
    "fa4": ["flash-attn-4==4.0.0b36", "nvidia-cutlass-dsl==4.8.1", "nvidia-cutlass-dsl-libs-base==4.8.1",
            "nvidia-cutlass-dsl-libs-core==4.8.1", "nvidia-cutlass-dsl-libs-cu13==4.8.1", "quack-kernels==0.6.5",
            "apache-tvm-ffi==0.1.15.post2", "torch-c-dlpack-ext==0.1.5", "einops==0.8.2"],
    "cudnn": ["nvidia-cudnn-frontend==1.32.0"],
    "flashinfer": ["flashinfer-python==0.7.4", "apache-tvm-ffi==0.1.15.post2", "einops==0.8.2", "tabulate==0.10.0",
                   "nvidia-ml-py==13.615.71"],
    "jvp": ["jvp_flash_attention==0.14.0"],
    "natten": [],
}  # fmt: skip
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (*range(39, 23, -1), 17)] + ["manylinux2014_x86_64"]
# Libraries beyond 20 MB that are loaded; others are for other GPUs or versions of Python.
LARGE = ("_cutlass_ir.cu13.cpython-312-x86_64-linux-gnu.so", "libcute_dsl_runtime.so", "fa3_fwd/_C.abi3.so", "_vllm_fa3_C.abi3.so")
# Sources that FlashInfer compiles (those of decoding and prefill are read also if their kernels are there), and vLLM but for its kernels.
UNUSED = re.compile(r"^vllm/(?!vllm_flash_attn/_vllm_fa3_C|_flashmla_C)|flashinfer/data/(?!csrc/(batch_decode|batch_prefill|[^/]*\.jinja)|aot/)|flashinfer/(?!data/).*\.(cu|cuh|o|cubin|ptx)$")
FILTERS = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 64 << 20}]


def is_wanted(path, size):
    if path.endswith(".a") or UNUSED.search(path):
        return False
    return size < 20 << 20 or path.endswith(LARGE)


def download(name, site):
    """Puts the wheels of a peer into a folder."""
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.12"]
        command += ["--implementation", "cp", "--abi", "cp312", "--abi", "abi3", "--abi", "none", "-d", wheels]
        for platform in PLATFORMS:
            command += ["--platform", platform]
        subprocess.run([*command, *PEERS[name]], check=True)
        for wheel in sorted(pathlib.Path(wheels).glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site, [one for one in archive.infolist() if is_wanted(one.filename, one.file_size)])


def gather(name, site, options):
    """Fills a folder with what a peer imports."""
    if PEERS[name]:
        download(name, site)
    if name == "natten":
        shutil.copytree(options.natten, site / "natten", ignore=shutil.ignore_patterns("__pycache__"))
    for module in sorted(options.flashinfer.glob("*/*.so")) if name == "flashinfer" and options.flashinfer else ():
        place = site / "flashinfer" / "data" / "aot" / module.stem
        place.mkdir(parents=True)
        shutil.copy(module, place)


def pack(options):
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.only or [name for name in PEERS if name != "natten" or options.natten]:
        with tempfile.TemporaryDirectory() as work:
            site, whole = pathlib.Path(work, "site"), pathlib.Path(work, "whole")
            site.mkdir()
            gather(name, site, options)
            with lzma.open(whole, "w", filters=FILTERS) as file, tarfile.open(fileobj=file, mode="w|") as tar:
                for path in sorted(site.iterdir()):
                    tar.add(path, path.name)
            size = whole.stat().st_size
            for old in options.folder.glob(f"{name}.tar.xz.*"):
                old.unlink()
            parts = -(-size // (options.part << 20))
            with open(whole, "rb") as file:
                for i in range(parts):
                    (options.folder / f"{name}.tar.xz.{i + 1}-of-{parts}").write_bytes(file.read(options.part << 20))
            print(f"{name}: {size / 1e6:.1f} MB in {parts} parts", flush=True)


def unpack(options):
    found = {}  # name -> number of parts -> part -> path
    for path in (path for folder in options.folders for path in folder.glob("*.tar.xz.*-of-*")):
        name, part, parts = re.fullmatch(r"(.+)\.tar\.xz\.(\d+)-of-(\d+)", path.name).groups()
        found.setdefault((name, int(parts)), {})[int(part)] = path
    for (name, parts), paths in found.items():
        if missing := [part for part in range(1, parts + 1) if part not in paths]:
            sys.exit(f"bundle.py: {name} is without part {', '.join(map(str, missing))} of {parts}: give the folder that has it")
        with tempfile.TemporaryFile() as whole:
            for part in sorted(paths):
                whole.write(paths[part].read_bytes())
            whole.seek(0)
            with lzma.open(whole) as file, tarfile.open(fileobj=file, mode="r|") as tar:
                tar.extractall(options.site, filter="data")
        print(f"# {name}", flush=True)
    print(f"export PYTHONPATH={options.site}:{options.site / 'nvidia_cutlass_dsl' / 'dsl_packages'}:$PYTHONPATH "
          "FLASHINFER_DISABLE_VERSION_CHECK=1")  # fmt: skip


def modules(options):
    """Compiles FlashInfer's modules for decoding bf16: without mods, with ALiBi, a window and a softcap, and by tensor cores."""
    os.environ |= {"FLASHINFER_WORKSPACE_BASE": str(options.modules), "FLASHINFER_CUDA_ARCH_LIST": "9.0a",
                   "FLASHINFER_DISABLE_VERSION_CHECK": "1"}  # fmt: skip
    import torch
    from flashinfer.jit.attention import modules as kernels

    types = torch.bfloat16, torch.bfloat16, torch.bfloat16, torch.int32
    for width in (64, 128):
        mods = (0, False, False), (2, False, False), (0, True, False), (0, False, True)
        specs = [kernels.gen_batch_decode_module(*types, width, width, *mod) for mod in mods]
        specs.append(kernels._gen_batch_prefill_primary_module("fa2", *types, width, width, 0, False, False, False))
        for spec in specs:
            spec.build(verbose=False)
            (target := options.modules / spec.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(spec.get_library_path(), target / f"{spec.name}.so")
            print(spec.name, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    path = lambda text: pathlib.Path(text).resolve()
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("modules")
    command.add_argument("modules", type=path)
    command.set_defaults(run=modules)
    command = commands.add_parser("pack")
    command.add_argument("folder", type=path)
    command.add_argument("--flashinfer", type=path, metavar="MODULES")
    command.add_argument("--natten", type=path, metavar="BUILD/natten")
    command.add_argument("--only", nargs="+", choices=PEERS, metavar="NAME", help=", ".join(PEERS))
    command.add_argument("--part", type=int, default=36, metavar="MIB", help="default: %(default)s")
    command.set_defaults(run=pack)
    command = commands.add_parser("unpack")
    command.add_argument("site", type=path)
    command.add_argument("folders", type=path, nargs="+")
    command.set_defaults(run=unpack)
    options = parser.parse_args()
    if "natten" in (getattr(options, "only", None) or ()) and not options.natten:
        parser.error("natten is no wheel: build it by build_natten.py, and give --natten BUILD/natten")
    options.run(options)


if __name__ == "__main__":
    main()
