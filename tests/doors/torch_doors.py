"""A mod at the doors of Python that need PyTorch, and as PyTorch itself computes it."""

import pathlib
import subprocess
import tempfile

import attnc
import attnc.torch
import numpy as np
import torch
from attention import Gathers
from attnc.torch.translation import translate
from comparing import Expected, difference, gradients_of, operands, scores_of
from trees import HALVES, NUMBERS, TORCH, Eager, extent_of, functions_of, text_of
from safetensors.torch import load_file, save_file
from torch.nn.attention.flex_attention import _vmap_for_bhqkv


class Stub:
    """A dtype or an extent in the declarations of a text that CPython runs."""

    def __getitem__(self, dims):
        return self


def tensor_of(capture, problem):
    dims = [extent_of(dim, problem) for dim in capture.dims]
    return torch.tensor(capture.data, dtype=getattr(torch, TORCH[capture.dtype])).reshape(dims)


def captures_of(mod):
    return {
        capture.name: capture.data[0] if capture.dtype in NUMBERS else tensor_of(capture, mod.problem)
        for capture in mod.used()
    }


def functions_in(text, captures):
    """Runs a text in CPython. Returns its score_mod and mask_mod, or None."""
    names = dict.fromkeys((*TORCH, "B", "H", "HKV", "Q_LEN", "KV_LEN"), Stub()) | captures | {"torch": torch}
    exec(text, names)
    return names.get("score_mod"), names.get("mask_mod")


def everywhere(function, problem, *score):
    """Evaluates a mod at all positions as FlexAttention does without a compiler: positions are of int64."""
    batch, heads, _, q_len, kv_len = problem
    positions = [torch.arange(extent) for extent in (batch, heads, q_len, kv_len)]
    with Gathers():
        return _vmap_for_bhqkv(function, prefix=(0,) * len(score))(*score, *positions)


class Case:
    """A mod, its operands, and what PyTorch says of it. Raises what PyTorch raises."""

    def __init__(self, mod):
        self.mod, self.text = mod, text_of(mod)
        self.captures = captures_of(mod)
        self.arrays = q, k, v, dout, dlse = operands(mod)
        self.functions = functions_in(self.text, self.captures)
        self.leaves = {name: x for name, x in self.captures.items()
                       if torch.is_tensor(x) and x.is_floating_point()}  # fmt: skip
        shape = (*q.shape[:3], k.shape[2])
        leaves = {name: x.clone().requires_grad_() for name, x in self.leaves.items()}
        known = {name: x.reshape(1) if torch.is_tensor(x) and x.dim() == 0 else x
                 for name, x in (self.captures | leaves).items()}  # fmt: skip
        self.eager, self.known = functions_of(mod, Eager), known
        score_mod, mask_mod = functions_in(self.eager, known)
        live = np.ones(shape, bool)
        if mask_mod:
            live = np.broadcast_to(everywhere(mask_mod, mod.problem).detach().numpy(), shape)
        score = torch.from_numpy(scores_of(q, k)).requires_grad_()
        scores = (everywhere(score_mod, mod.problem, score) if score_mod else score * 1).float()
        self.expected = Expected(scores.detach().numpy(), live, {})
        self.expected.coarse = {capture.name for capture in mod.captures if capture.dtype in HALVES}
        d_result = torch.from_numpy(self.expected.of_scores(dout[..., : k.shape[2]], dlse))
        wanted = [score, *leaves.values()]
        found = [None] * len(wanted)
        if scores.requires_grad:
            found = torch.autograd.grad(scores, wanted, d_result, allow_unused=True)
        d_score, *others = [np.zeros(x.shape, np.float32) if grad is None else grad.float().numpy()
                            for x, grad in zip(wanted, found)]  # fmt: skip
        self.expected.gradients = gradients_of(self.expected, d_score, dict(zip(leaves, others)), q, k, dout)
        self.tensors = [torch.from_numpy(np.array(x)) for x in self.arrays]

    # ---- Doors. Each returns (weights, lse, gradients or None) ----

    def as_text(self):
        return self._attention(attnc.Mod.parse(self.text))

    def as_ir(self):
        return self._attention(attnc.Mod.parse_ir(attnc.Mod.parse(self.text).ir))

    def _attention(self, mod):
        q, k, v, *_ = self.tensors
        return *attnc.attention(mod, q, k, v, captures=self.captures, return_lse=True), None

    def as_ir_of_torch(self):
        batch, heads, kv_heads, q_len, kv_len = self.mod.problem
        program = translate(*self.functions, problem=(batch, heads, kv_heads, q_len, kv_len))
        q, k, v, *_ = self.tensors
        captures = {**program.tensors, **program.scalars}
        return *attnc.attention(attnc.Mod.parse_ir(program.text), q, k, v, captures=captures, return_lse=True), None

    def in_torch(self, device="cpu"):
        (score_mod, mask_mod), problem = self.functions, self.mod.problem
        captures = self.captures
        if device != "cpu":
            captures = {name: x.to(device) if torch.is_tensor(x) else x for name, x in captures.items()}
            score_mod, mask_mod = functions_in(self.text, captures)
        *qkv, dout, dlse = (x.to(device) for x in self.tensors)
        block_mask = mask_mod and attnc.torch.create_block_mask(
            mask_mod, problem[0], problem[1], problem[3], problem[4], device=device
        )
        leaves = {**dict(zip("qkv", qkv)), **{name: captures[name] for name in self.leaves}}
        for x in leaves.values():
            x.requires_grad_()
        try:
            out, lse = attnc.torch.flex_attention(
                *qkv, score_mod=score_mod, block_mask=block_mask, enable_gqa=True, return_lse=True
            )
            found = torch.autograd.grad([out, lse], list(leaves.values()), [dout, dlse], allow_unused=True)
        finally:
            for x in leaves.values():
                x.requires_grad_(False)
        gradients = {name: x.float().cpu() for name, x in zip(leaves, found) if x is not None}
        return out.detach().cpu(), lse.detach().cpu(), gradients

    def differs_in_blocks(self):
        """Describes a block of the mask's lists that is not as its elements are; empty if all are."""
        batch, heads, _, q_len, kv_len = self.mod.problem
        mask_mod = self.functions[1]
        if mask_mod is None:
            return ""
        mask = attnc.torch.create_block_mask(mask_mod, batch, heads, q_len, kv_len, device="cpu")
        live = np.broadcast_to(everywhere(functions_in(self.eager, self.known)[1], self.mod.problem).detach().numpy(),
                               (batch, heads, q_len, kv_len))  # fmt: skip
        kinds = {}
        for kind, counts, indices in (("partial", mask.kv_num_blocks, mask.kv_indices),
                                      ("full", mask.full_kv_num_blocks, mask.full_kv_indices)):  # fmt: skip
            for row in np.ndindex(*(counts.shape if counts is not None else (0,))):
                kinds |= {(*row, int(column)): kind for column in indices[row][: counts[row]]}
        rows, columns = mask.BLOCK_SIZE
        for b, h, i, j in np.ndindex(batch, heads, -(-q_len // rows), -(-kv_len // columns)):
            block, kind = live[b, h, i * rows :, j * columns :][:rows, :columns], kinds.get((b, h, i, j), "empty")
            if block.any() if kind == "empty" else kind == "full" and not block.all():
                return f"block {b, h, i, j} (b, h, row, column) is {kind} in the lists; {block.sum()} scores live"
        return ""

    def by_command(self, command):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "mod.py").write_text(self.text, encoding="utf-8")
            given = dict(zip(("q", "k", "v", "dout", "dlse"), self.tensors))
            given |= {name: x for name, x in self.captures.items() if torch.is_tensor(x)}
            save_file({name: x.contiguous() for name, x in given.items()}, folder / "in.safetensors")
            scalars = [f"--set={name}={x}" for name, x in self.captures.items() if not torch.is_tensor(x)]
            done = subprocess.run(
                [command, "run", folder / "mod.py", "--in", folder / "in.safetensors",
                 "--out", folder / "out.safetensors", "--device=cpu", "--lse", "--backward", *scalars],
                capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
            found = load_file(folder / "out.safetensors")
        names = {name: f"d{name}" for name in "qkv"} | {name: f"d_{name}" for name in self.leaves}
        gradients = {name: found[its].float() for name, its in names.items() if its in found}
        return found["out"].float(), found["lse"], gradients

    def differs(self, door):
        """Describes the difference at a door, a function that returns what it computes; empty if there is none."""
        try:
            if door == self.differs_in_blocks:
                return door()
            weights, lse, gradients = door()
        except Exception as error:
            return f"refused: {type(error).__name__}: {error}"
        return difference(self.expected, weights, lse, gradients)
