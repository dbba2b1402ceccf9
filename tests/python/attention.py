"""Attention by definition, in PyTorch, and by `attnc run` on the CPU: the two sides that the tests compare."""

import pathlib
import subprocess
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch.nn.attention.flex_attention import _vmap_for_bhqkv
from torch.overrides import TorchFunctionMode


class Gathers(TorchFunctionMode):
    """t[i, 2] with 0-d tensors among the indices is a gather: torch.vmap knows that of aten.index, and not of
    __getitem__."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__getitem__:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(index, torch.Tensor) for index in indices):
                dots = [place for place, index in enumerate(indices) if index is ...]
                for place in dots:
                    left = args[0].dim() - len(indices) + 1
                    indices = *indices[:place], *[slice(None)] * left, *indices[place + 1 :]
                every = [
                    torch.arange(size)[index] if isinstance(index, slice) else index
                    for index, size in zip(indices, args[0].shape)
                ]
                return torch.ops.aten.index(args[0], [torch.as_tensor(index) for index in every])
        return function(*args, **(kwargs or {}))


def everywhere(mod, extents, *score, device=None):
    """Evaluates a mod at all positions at once, as FlexAttention does without a compiler."""
    positions = [torch.arange(extent, device=device) for extent in extents]
    call = lambda *args: torch.as_tensor(mod(*args))
    with Gathers():
        return _vmap_for_bhqkv(call, prefix=(0,) * len(score))(*score, *positions)


def by_definition(score_mod, mask_mod, q, k, v, scale=None, prob_mod=None):
    """Returns (out, lse), computed in fp64 around the mods, which are f32."""
    group, wide = q.shape[1] // k.shape[1], torch.float64
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    k, v = (x.to(wide).repeat_interleave(group, 1) for x in (k, v))
    score = (q.to(wide) @ k.mT) * scale
    extents = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if score_mod:
        score = everywhere(score_mod, extents, score.float(), device=q.device).to(wide)
    live = everywhere(mask_mod, extents, device=q.device) if mask_mod else torch.ones_like(score, dtype=torch.bool)
    live = live & (score != -torch.inf)
    seen = live.any(-1, keepdim=True)
    score = score.masked_fill(~live, -torch.inf).masked_fill(~seen, 0)  # no NaN, which would spoil gradients
    lse = score.logsumexp(-1, keepdim=True)
    weights = torch.where(live & seen, (score - lse).exp(), 0)
    if prob_mod:
        ones = torch.ones_like(score, dtype=torch.float32)
        weights = weights * everywhere(prob_mod, extents, ones, device=q.device).to(wide)
    return weights @ v, lse.masked_fill(~seen, -torch.inf).squeeze(-1)


def run_attnc(attnc, translation, tensors, *options):
    """Returns what `attnc run` writes for q, k, v and dout, with the reference on the CPU."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "mod.ir").write_text(translation.text, encoding="utf-8")
        given = {**tensors, **translation.tensors}
        save_file({name: x.detach().contiguous().clone() for name, x in given.items()}, folder / "in.safetensors")
        values = [f"--set={name}={value}" for name, value in translation.scalars.items()]
        command = [attnc, "run", folder / "mod.ir", "--in", folder / "in.safetensors", "--out", folder / "out.safetensors"]
        command += ["--device=cpu", "--lse", *values, *options]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode}\n{done.stderr}\n{translation.text}")
        return load_file(folder / "out.safetensors")


def relative_error(actual, expected):
    """Returns the RMS of the difference in units of the expected RMS. Infinities must be equal."""
    actual, expected = actual.double(), expected.detach().double()
    if not torch.equal(actual.isinf(), expected.isinf()):
        return float("inf")
    actual, expected = actual.masked_fill(actual.isinf(), 0), expected.masked_fill(expected.isinf(), 0)
    return ((actual - expected).square().mean().sqrt() / expected.square().mean().sqrt().clamp(min=1e-3)).item()
