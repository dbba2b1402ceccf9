#!/usr/bin/env python3
"""Compares the gradients that `attnc run --backward` writes with PyTorch's autograd.

  python3 torch_test.py ATTNC [-v ...]

Covers every mod of the library, and formulas whose rows of scores 0 lie on a kink, where PyTorch's convention counts.
Prints SKIPPED if torch is not installed. Without a GPU, attnc computes with its fp64 reference.
"""
import concurrent.futures
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
try:
    import torch
    from torch_mods import Mod, gradients, relative_error, run_attnc
except ImportError as error:
    sys.exit(print(f"SKIPPED: {error}"))

ATTNC = sys.argv.pop(1)
B, H, HKV, Q_LEN, KV_LEN, D = 2, 4, 2, 120, 150, 64
EXTENTS = {"B": B, "H": H, "HKV": HKV, "Q_LEN": Q_LEN, "KV_LEN": KV_LEN}
SCALARS = {"window": 40, "prefix": 30, "global_tokens": 5, "cap": 5.0, "scale": 0.125, "x": 0.75, "sinks": 4, "half": 48,
           "left": 2, "seed": 7}
# torch.vmap takes no min, max, any, `and` or `if` of tensors.
NOT_VECTORISED = {"joint_image", "neighborhood2d", "neighborhood3d", "top_k_blocks"}
# Of score, and of captures: per head, per position, a scalar. Where score is 0 some are at a kink. Not here: the kinks
# where dsl/SPEC.md says that PyTorch differs.
FORMULAS = [
    "torch.abs(score)", "torch.relu(score)", "F.leaky_relu(score, 0.2)", "torch.clamp(score, -0.25, 1.5)",
    "torch.clamp(score, min=-1.0)", "torch.where(score > 0, score, 0.25 * score)", "torch.maximum(score, zero[h])",
    "torch.minimum(score, zero[h] * 2)", "F.silu(score)", "F.gelu(score)", "F.softplus(score)", "torch.exp(score / 4)",
    "torch.expm1(score / 4)", "torch.log1p(torch.abs(score))", "torch.sqrt(score * score + 1)",
    "torch.rsqrt(score * score + 1)", "torch.sin(score) + torch.cos(2 * score)", "torch.tan(score / 8)",
    "torch.atan(score) + torch.atan2(score, t[h])", "torch.asin(torch.tanh(score)) - torch.acos(torch.tanh(t[h]) / 2)",
    "torch.sinh(score / 4) + torch.cosh(t[h])", "torch.asinh(score * 9) + torch.acosh(score * score + 1.5)",
    "torch.atanh(torch.tanh(score) / 2)", "torch.erfc(score) + torch.sinc(score)", "torch.hypot(score, t[h] + 2)",
    "torch.sigmoid(score) * 3", "torch.erf(score)", "torch.exp2(score / 3)", "torch.log2(score * score + 2)",
    "score ** 3 / 8", "torch.pow(torch.abs(score) + 0.5, t[h])", "score / (1 + t[h] * t[h])", "score * score.detach()",
    "score * torch.tanh(t[h]) + t[h] * t[h] * (kv_idx - q_idx) / 64", "score + u[q_idx] * u[kv_idx]",
    "score * x + x * x * t[h]", "torch.where((q_idx + kv_idx) % 3 == 0, score * score, u[kv_idx])",
    "score + u[torch.abs(q_idx - kv_idx)]",
]
HEAD = "t: f32[H]\nzero: f32[H]\nu: f32[N]\nx: float\n"
# What kernels of a dtype leave of the RMS of a gradient: in f32 the rounding of scores and sums, in bf16 that of out,
# P, dS and the result, 2^-9 each. The hardware's tanh is off by 2e-4 of the cap.
TOLERANCE = {torch.float32: 3e-5, torch.bfloat16: 1e-2}
APPROXIMATE = {"softcap_approx": 1e-2}


class Job:
    """Runs a mod on tensors of a dtype, with a family of kernels."""

    def __init__(self, name, mod, dtype, family=None):
        self.name = f"{name}, {dtype}, {family or 'the default family'}"
        self.mod, self.tolerance = mod, max(TOLERANCE[dtype], APPROXIMATE.get(name, 0))
        generator = torch.Generator().manual_seed(len(name))
        normal = lambda *shape: torch.randn(shape, generator=generator).to(dtype)
        self.tensors = {"q": normal(B, H, Q_LEN, D), "k": normal(B, HKV, KV_LEN, D), "v": normal(B, HKV, KV_LEN, D),
                        "dout": normal(B, H, Q_LEN, D), "dlse": normal(B, H, Q_LEN).float()}
        self.tensors["q"][:, :, ::8] = 0  # their scores are exactly 0
        self.scalars = {name: SCALARS[name] for name in mod.scalars()}
        self.tensors.update(mod.draw({**EXTENTS, "N": KV_LEN}, self.scalars, generator))
        if "zero" in self.tensors:
            self.tensors["zero"].zero_()
        self.options = ["--backward", *([f"--kernel-family={family}"] if family else [])]

    def limits(self, expected):
        """Of the error of each result. A gradient of a capture may be as coarse as the dtype that it is stored in. In
        bf16 rounded weights do not sum up to 1, so a row of dS not to 0: over distances, as for a slope, that does not
        cancel. Rounding P alone leaves 0.077 of ALiBi's here."""
        limits = {name: self.tolerance for name in expected}
        for name in expected:
            capture = self.tensors.get(name.removeprefix("d_")) if name.startswith("d_") else None
            if capture is not None and torch.bfloat16 in (capture.dtype, self.tensors["q"].dtype):
                limits[name] = 1e-1 if self.tensors["q"].dtype == torch.bfloat16 else 5e-3
        return limits

    def run(self):
        """Describes the errors; empty if there are none."""
        try:
            actual = run_attnc(ATTNC, self.mod, self.tensors, self.scalars, *self.options)
        except RuntimeError as error:
            return str(error)
        expected = gradients(self.mod, self.tensors, self.scalars)
        missing = [name for name, grad in expected.items() if name not in actual and grad.any()]
        errors = {name: relative_error(actual[name], grad) for name, grad in expected.items() if name in actual}
        limits = self.limits(expected)
        wrong = {name: f"{error:.2g} > {limits[name]:.2g}" for name, error in errors.items() if not error <= limits[name]}
        return f"errors {wrong}, missing {missing}" if wrong or missing else ""


def jobs():
    on_gpu = torch.cuda.is_available()
    for path in sorted((ROOT / "dsl" / "mods").glob("*.py")):
        if path.stem in NOT_VECTORISED:
            continue
        mod = Mod.load(path)
        yield Job(path.stem, mod, torch.float32)
        if on_gpu:
            yield Job(path.stem, mod, torch.float32, "naive")
            if path.stem not in ("dropout", "sigmoid"):  # whose gradients this family does not compute
                yield Job(path.stem, mod, torch.bfloat16, "sm80")
            yield Job(path.stem, mod, torch.bfloat16)
    for formula in FORMULAS:
        text = f"{HEAD}def score_mod(score, b, h, q_idx, kv_idx):\n    return {formula}\n"
        yield Job(formula, Mod(text), torch.float32)


class TorchTest(unittest.TestCase):
    def test_gradients_are_those_of_autograd(self):
        all_jobs = list(jobs())
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for job, wrong in zip(all_jobs, pool.map(Job.run, all_jobs)):
                with self.subTest(job.name):
                    self.assertFalse(wrong, wrong)
        print(f"{len(all_jobs)} mods and kernels")


if __name__ == "__main__":
    unittest.main()
