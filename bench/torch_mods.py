"""Mods as PyTorch functions, dense attention with autograd around them, and `attnc run` on the same tensors.

Shared by accuracy.py and the tests against PyTorch's autograd. Needs torch and safetensors. CPython executes a mod's
text with the real torch; torch.vmap vectorises its functions, as in FlexAttention. Numbers of the mod are f32, as in
attnc; everything around it has the requested precision.
"""
import __future__

import ast
import functools
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch.overrides import TorchFunctionMode

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools" / "python"))  # mods import names of attnc

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i32": torch.int32, "i64": torch.int64,
          "bool": torch.bool}
SCALARS = {"int": int, "float": float, "bool": bool}


class Gathers(TorchFunctionMode):
    """Makes t[i, j] with tensors as indices a gather: torch.vmap supports it for aten.index, but not for
    __getitem__."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.__getitem__:
            indices = args[1] if isinstance(args[1], tuple) else (args[1],)
            if all(isinstance(index, torch.Tensor) for index in indices):
                return torch.ops.aten.index(args[0], [index.long() for index in indices])
        return function(*args, **(kwargs or {}))


class Mod:
    """A mod's text. `captures` maps names to (dtype or scalar type, dims as text): those declared without a value."""

    def __init__(self, text, path="<mod>"):
        tree = ast.parse(text, path)
        self.text = text
        self.code = compile(tree, path, "exec", flags=__future__.annotations.compiler_flag)
        self.captures = {}
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and node.value is None:
                kind = node.annotation
                dims = []
                if isinstance(kind, ast.Subscript):
                    dims = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else [kind.slice]
                    kind = kind.value
                self.captures[node.target.id] = (ast.unparse(kind), [ast.unparse(dim) for dim in dims])

    @staticmethod
    def load(path):
        return Mod(pathlib.Path(path).read_text(encoding="utf-8"), str(path))

    def scalars(self):
        return [name for name, (kind, dims) in self.captures.items() if kind in SCALARS and not dims]

    def namespace(self, values):
        """Returns the module after its text ran with `values` of its captures and extents."""
        names = {"torch": torch, "F": torch.nn.functional, "functools": functools, "tanh_approx": torch.tanh, **values}
        exec(self.code, names)
        names.update(values)  # extents that the text imports have no value there
        return names

    def draw(self, extents, scalars, generator):
        """Draws random tensors for its captures. Integers along a sequence are documents."""
        names = self.namespace({**extents, **scalars})
        tensors = {}
        for name, (kind, dims) in self.captures.items():
            if not dims and kind in SCALARS:
                continue
            shape, dtype = [eval(dim, names) for dim in dims], DTYPES[kind]
            if dtype.is_floating_point:
                tensors[name] = (torch.randn(shape, generator=generator) / 2).to(dtype)
            elif dtype == torch.bool:
                tensors[name] = torch.rand(shape, generator=generator) < 0.5
            else:
                starts = torch.rand(shape, generator=generator) < 8 / shape[-1] if shape else torch.ones(1)
                tensors[name] = starts.cumsum(-1).to(dtype).reshape(shape)
        return tensors

    def functions(self, values, device):
        """Returns {score_mod, mask_mod, prob_mod, weight_mod, sink_mod: of all indices at once}: (score [B, H, Q, KV]) -> the
        same, () -> bool [B, H, Q, KV], (prob) -> the same, (score) -> the same, () -> [B, H, Q]. False for a missing function."""
        names = self.namespace(values)
        indices = [torch.arange(values[extent], dtype=torch.int32, device=device)
                   for extent in ("B", "H", "Q_LEN", "KV_LEN")]

        def everywhere(function, axes, *score):
            for i in reversed(range(axes)):
                function = torch.vmap(function, in_dims=(*[0] * len(score), *(0 if j == i else None for j in range(axes))))
            with Gathers():
                return function(*score, *indices[:axes])

        def tensor(function):  # vmap takes tensors alone
            def wrapped(*args):
                result = function(*args)
                is_traced = isinstance(result, torch.Tensor)
                return result if is_traced else torch.full_like(args[0], result, dtype=torch.bool)
            return wrapped
        if mask_mod := names.get("mask_mod"):
            names["mask_mod"] = tensor(mask_mod)
        if sink_mod := names.get("sink_mod"):
            names["sink_mod"] = lambda *at: torch.as_tensor(sink_mod(*at), device=device)
        axes = {"score_mod": 4, "mask_mod": 4, "prob_mod": 4, "weight_mod": 4, "sink_mod": 3}
        return {name: name in names and functools.partial(everywhere, names[name], count) for name, count in axes.items()}


def extents_of(q, k):
    return {"B": q.shape[0], "H": q.shape[1], "HKV": k.shape[1], "Q_LEN": q.shape[2], "KV_LEN": k.shape[2]}


def attention(mod, tensors, scalars, products=torch.float64):
    """Returns (out, lse) of `tensors` q, k, v and captures. `products` is the dtype that q k^T and P v are computed and
    stored in; the softmax is f32 or wider. A fully masked row has lse -inf and out 0."""
    q, k, v = (tensors[name] for name in "qkv")
    wide = torch.promote_types(products, torch.float32)
    group = q.shape[1] // k.shape[1]
    k, v = (x.to(products).repeat_interleave(group, 1) for x in (k, v))
    score = (q.to(products) @ k.mT).to(wide) / q.shape[-1] ** 0.5
    captures = {name: x.float() if x.is_floating_point() else x for name, x in tensors.items() if name in mod.captures}
    mods = mod.functions({**extents_of(q, tensors["k"]), **scalars, **captures}, q.device)
    if score_mod := mods["score_mod"]:
        score = score_mod(score.float()).to(wide)
    live = mods["mask_mod"]() if mods["mask_mod"] else torch.ones_like(score, dtype=torch.bool)
    seen = live.any(-1, keepdim=True)
    score = score.masked_fill(~live, -torch.inf).masked_fill(~seen, 0)  # avoids NaN, which would spoil gradients
    lse = score.logsumexp(-1, keepdim=True)
    if sink_mod := mods["sink_mod"]:
        lse = torch.logaddexp(lse, sink_mod().to(wide)[..., None])
    weights = torch.where(live & seen, (score - lse).exp(), 0)
    if prob_mod := mods["prob_mod"]:
        weights = prob_mod(weights)
    if weight_mod := mods["weight_mod"]:
        weights = torch.where(live, weight_mod(score.float()).to(wide), 0)
        lse = torch.zeros_like(lse)
    out = weights.to(products) @ v
    return out, lse.masked_fill(~seen, -torch.inf).squeeze(-1)


def gradients(mod, tensors, scalars, products=torch.float64):
    """Returns out, dq, dk, dv and d_<name> of each captured float. `tensors` hold dout, and possibly dlse."""
    floats = {name: x for name, x in tensors.items() if x.is_floating_point() and name not in ("dout", "dlse")}
    device = tensors["q"].device
    floats.update({name: torch.tensor(x, device=device) for name, x in scalars.items() if isinstance(x, float)})
    leaves = {name: x.detach().to(torch.float64 if products == torch.float64 else x.dtype).requires_grad_()
              for name, x in floats.items()}
    out, lse = attention(mod, {**tensors, **leaves}, scalars, products)
    results, given = [out], [tensors["dout"].to(out.dtype)]
    if "dlse" in tensors and lse.requires_grad:
        results.append(lse)
        given.append(torch.where(lse.isfinite(), tensors["dlse"].to(lse.dtype), 0))
    found = torch.autograd.grad(results, list(leaves.values()), given, allow_unused=True)
    names = {"q": "dq", "k": "dk", "v": "dv"}
    grads = {names.get(name, f"d_{name}"): torch.zeros_like(x) if g is None else g
             for (name, x), g in zip(leaves.items(), found)}
    return {"out": out.detach(), **grads}


def run_attnc(attnc, mod, tensors, scalars, *options):
    """Returns what `attnc run` writes for `tensors`: on the GPU if there is one, else with its fp64 reference."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "mod.py").write_text(mod.text, encoding="utf-8")
        save_file({name: x.detach().cpu().contiguous() for name, x in tensors.items()}, folder / "in.safetensors")
        given = [f"--set={name}={value}" for name, value in scalars.items()]
        command = [attnc, "run", folder / "mod.py", "--in", folder / "in.safetensors",
                   "--out", folder / "out.safetensors", *given, *options]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, command[1:]))}: exit code {done.returncode}\n{done.stderr}")
        return load_file(folder / "out.safetensors")


def relative_error(actual, expected):
    """Returns the RMS of the difference in units of the expected RMS; NaN if either has a NaN."""
    expected = expected.double()
    error = (actual.to(expected) - expected).square().mean().sqrt()
    return (error / expected.square().mean().sqrt().clamp(min=1e-30)).item()
