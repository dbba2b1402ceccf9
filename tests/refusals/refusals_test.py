#!/usr/bin/env python3
"""Gives the wrong operands of cases.json at each door, and compares what each answers.

  refusals_test.py [--attnc PROGRAM] [--doors c,attention,torch,jax,command]

ATTNC_LIBRARY names the library. Default: all doors whose packages this Python has. refusals_test.cpp is the door of C++.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools" / "python"))
if importlib.util.find_spec("numpy") is None:
    print("SKIPPED: needs NumPy")
    sys.exit(0)

import numpy as np  # noqa: E402

import attnc  # noqa: E402
from attnc import _spec as c  # noqa: E402
from attnc._library import DTYPES, KINDS, check, library  # noqa: E402
from attnc.launch import OPTIONS, members_of, settled  # noqa: E402

NUMPY = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64, "bool": np.bool_,
         "e4m3": np.uint8}  # fmt: skip
LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
         "full_q_num_blocks", "full_q_indices")  # fmt: skip
GRADIENTS, RESULTS = ("dq", "dk", "dv"), ("out", "lse", "row_max")


def array_of(spec):
    """Returns the tensor of a specification. Its memory is as large as its shape says, whatever its strides."""
    if isinstance(spec, list):
        return np.array(spec, np.int32)
    whole = np.zeros(spec["shape"], NUMPY[spec.get("dtype", "f32")])
    if "values" in spec:
        whole.flat = [float(value) for value in spec["values"]]
    if "stride" in spec:
        return np.lib.stride_tricks.as_strided(whole, strides=[step * whole.itemsize for step in spec["stride"]])
    return whole


class Problem:
    """The operands of a case: a problem of the table with the case's changes."""

    def __init__(self, problem, changes):
        self.mod, self.names = problem["mod"], set(problem.get("captures", ()))
        self.operands, self.captures = dict(problem["operands"]), dict(problem.get("captures", {}))
        self.lists, self.options = dict(problem["lists"]) if "lists" in problem else None, {}
        for name, value in changes.items():
            lists = self.lists is not None and (name in LISTS or name == "shape")
            to = self.captures if name in self.names else self.options if name in OPTIONS else self.operands
            to = self.lists if lists else to
            to[name] = value
        for group in filter(None, (self.operands, self.captures, self.lists)):
            for name in [name for name, value in group.items() if value is None]:
                del group[name]

    def capture(self, name):
        value = self.captures[name]
        return array_of(value) if isinstance(value, (list, dict)) else value


def by_c(problem):
    keep = []

    def struct(spec):
        array = array_of(spec)
        dtype = DTYPES[next(name for name, of in NUMPY.items() if of == array.dtype)]
        view = c.Tensor(data=array.ctypes.data, dtype=dtype, rank=array.ndim)
        view.shape[: array.ndim] = array.shape
        view.stride[: array.ndim] = [step // array.itemsize for step in array.strides]
        if isinstance(spec, dict) and spec.get("null"):
            view.data = None
        keep.append((array, view))
        return ctypes.pointer(view)

    mod = attnc.Mod.parse(problem.mod)
    captures = []
    for name in problem.captures:
        value = problem.capture(name)
        kind = "tensor" if isinstance(value, np.ndarray) else type(value).__name__
        entry = c.Capture(name=name.encode(), kind=KINDS.index(kind))
        if kind == "tensor":
            entry.tensor = struct(problem.captures[name])
        else:
            entry.real, entry.integer = value, 0 if kind == "float" else value
        captures.append(entry)
    tensors = {name: struct(spec) for name, spec in problem.operands.items()}
    operands = c.Operands(captures=(c.Capture * len(captures))(*captures), capture_count=len(captures))
    for name, at in tensors.items():
        if name not in (*GRADIENTS, *RESULTS, "dout", "dlse"):
            setattr(operands, name, at)
    if problem.lists is not None:
        lists = c.BlockMaskView(shape=c.BlockMaskShape(*problem.lists["shape"]))
        for group, names in ((lists.rows, LISTS[:4]), (lists.columns, LISTS[4:])):
            for (member, _), name in zip(c.BlockLists._fields_, names):
                if name in problem.lists:
                    array = array_of(problem.lists[name])
                    keep.append(array)
                    setattr(group, member, array.ctypes.data)
                    group.index_stride = 2
        operands.block_mask = ctypes.pointer(lists)
    q, dtype = problem.operands["q"]["shape"], problem.operands["q"].get("dtype", "f32")
    dtype = "f16" if dtype == "e4m3" else dtype
    like = lambda name: tensors.get(name) or struct({"shape": q, "dtype": dtype})  # noqa: E731
    if problem.options:  # those of a launch on a GPU
        outputs = c.Outputs(out=like("out"))
        structs = ctypes.byref(operands), ctypes.byref(outputs)
        settled(mod._handle.address, structs, arch=b"sm_90a", **dict(members_of(problem.options)))
    if "dout" not in problem.operands:
        outputs = c.Outputs(out=like("out"), lse=tensors.get("lse"), row_max=tensors.get("row_max"))
        compute = library().attnc_compute_on_cpu
        check(compute(mod._handle.address, ctypes.addressof(operands), ctypes.addressof(outputs)))
        return
    backward = c.BackwardOperands(
        forward=ctypes.pointer(operands), out=like("out"), lse=struct({"shape": q[:3]}), dout=tensors["dout"],
        dlse=tensors.get("dlse"),
    )  # fmt: skip
    outputs = c.BackwardOutputs(**{name: like(name) for name in GRADIENTS})
    check(
        library().attnc_compute_backward_on_cpu(
            mod._handle.address, ctypes.addressof(backward), ctypes.addressof(outputs)
        )
    )


def mask_of(problem, made=lambda x: x):
    lists = {name: made(array_of(problem.lists[name])) for name in LISTS[:4] if name in problem.lists}
    shape = problem.lists["shape"]
    return types.SimpleNamespace(**lists, seq_lengths=tuple(shape[2:4]), BLOCK_SIZE=tuple(shape[4:]))


def by_attention(problem):
    operands = {name: array_of(spec) for name, spec in problem.operands.items()}
    if any(x.dtype == np.uint8 for x in operands.values()):
        import torch

        tensors = {name: torch.from_numpy(x) for name, x in operands.items()}
        operands = {
            name: x.view(torch.float8_e4m3fn) if x.dtype == torch.uint8 else x for name, x in tensors.items()
        }  # fmt: skip
    if problem.lists is not None:
        operands["block_mask"] = mask_of(problem)
    captures = {name: problem.capture(name) for name in problem.captures}
    attnc.attention(problem.mod, captures=captures, **operands, **problem.options)


def by_torch(problem):
    import torch

    import attnc.torch
    from attnc.torch import flash

    tensors = {name: torch.from_numpy(array_of(spec)) for name, spec in problem.operands.items()}
    q, k, v = (tensors[name] for name in "qkv")
    if "cu_seqlens_q" in tensors:
        q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
        longest = q.shape[0]
        flash._forward(
            None, q, k, v, tensors["cu_seqlens_q"], tensors["cu_seqlens_kv"], longest, longest, 0.0, False, False
        )
        return
    if problem.lists is not None:
        lists = [torch.from_numpy(array_of(problem.lists[name])) for name in LISTS[:4]]
        mask = attnc.torch.BlockMask.from_kv_blocks(
            *lists, BLOCK_SIZE=tuple(problem.lists["shape"][4:]), mask_mod=lambda b, h, i, j: i >= j,
            seq_lengths=tuple(problem.lists["shape"][2:4]),
        )  # fmt: skip
        attnc.torch.flex_attention(q, k, v, block_mask=mask)
        return
    if not problem.captures:
        attnc.torch.flex_attention(q, k, v, lambda s, b, h, i, j: s, kernel_options=problem.options)
        return
    index, table = (torch.from_numpy(problem.capture(name)) for name in ("index", "table"))
    attnc.torch.flex_attention(q, k, v, lambda s, b, h, i, j: s + table[index[i]])


def by_jax(problem):
    import jax.numpy as jnp

    import attnc.jax

    q, k, v = (jnp.asarray(array_of(problem.operands[name])) for name in "qkv")
    index, table = (jnp.asarray(problem.capture(name)) for name in ("index", "table"))
    attnc.jax.flex_attention(q, k, v, lambda s, b, h, i, j: s + table[index[i]]).block_until_ready()


def flag_of(name, value):
    """Returns the words of the command for an option."""
    flag = {"family": "--kernel-family", "decode": "--kernel"}.get(name, f"--{name.replace('_', '-')}")
    return [flag, "decode" if value == "always" else str(value)] if value is not True else [flag]


def by_command(problem, program, folder):
    tensors = {name: array_of(spec) for name, spec in problem.operands.items()}
    if "cu_seqlens_q" in tensors:
        for name in ("q", "new_k", "new_v") if "page_table" in tensors else "qkv":
            tensors[name] = np.ascontiguousarray(tensors[name][0].transpose(1, 0, 2))
    for name in problem.captures:
        value = problem.capture(name)
        kind = np.bool_ if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float32
        tensors[name] = value if isinstance(value, np.ndarray) else np.array(value, kind)
    names = {np.dtype(t): n for n, t in zip(("F32", "F16", "I32", "I64", "BOOL", "F8_E4M3"), NUMPY.values())}
    header, end = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": names[x.dtype], "shape": [*x.shape], "data_offsets": [end, end + x.nbytes]}
        end += x.nbytes
    text = json.dumps(header).encode()
    path = pathlib.Path(folder) / "operands.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(x.tobytes() for x in tensors.values()))
    mod = pathlib.Path(folder) / "mod.py"
    is_text = "\n" in problem.mod
    if is_text:
        mod.write_text(problem.mod)
    done = subprocess.run(
        [program, "run", *([str(mod)] if is_text else ["--expr", problem.mod]), "--in", str(path), "--device", "cpu",
         *(word for name, value in problem.options.items() for word in flag_of(name, value))],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attnc")
    parser.add_argument("--doors")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    doors = {"c": by_c, "attention": by_attention}
    doors |= {name: door for name, door in (("torch", by_torch), ("jax", by_jax)) if importlib.util.find_spec(name)}
    folder = tempfile.TemporaryDirectory()
    if options.attnc:
        doors["command"] = lambda problem: by_command(problem, options.attnc, folder.name)
    if options.doors:
        doors = {name: doors[name] for name in options.doors.split(",")}
    table = json.loads((HERE / "cases.json").read_text())
    for problem in table["problems"].values():
        is_fp8 = any(isinstance(x, dict) and x.get("dtype") == "e4m3" for x in problem["operands"].values())
        if is_fp8 and not importlib.util.find_spec("torch"):  # NumPy has no e4m3
            problem["doors"].remove("attention")
    wrong, given = [], dict.fromkeys(doors, 0)
    for case in table["cases"]:
        problem = table["problems"][case["problem"]]
        os.environ.update(problem.get("environment", {}))
        for door in case.get("doors", problem["doors"]):
            if door not in doors:
                continue
            given[door] += 1
            try:
                doors[door](Problem(problem, case["set"]))
                answer = "nothing"
            except Exception as error:
                answer = str(error)
            if case["error"] not in answer:
                wrong.append(f"{door}: {case['problem']}, {case['set']}\n  expected {case['error']}\n  is       {answer}")
        for name in problem.get("environment", ()):
            del os.environ[name]
    # As they are, the problems are computed: what is refused is the change.
    for name, problem in table["problems"].items():
        for door in problem["doors"]:
            if door in doors:
                doors[door](Problem(problem, {}))
    counts = ", ".join(f"{count} at {door}" for door, count in given.items())
    print("\n".join(wrong) or f"every wrong operand is refused by one text: {counts}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
