"""NATTEN: its Hopper kernels, if its library was built (build_natten.py), otherwise FlexAttention as it calls it. Serves cases
of papers/fna.py."""

import natten
import torch


NAME = "natten"
AXES = {1: "na1d", 2: "na2d", 3: "na3d"}


def version():
    return f"natten {natten.__version__}{'' if natten.HAS_LIBNATTEN else ' over FlexAttention'}"


def serves(case):
    return case.variant == "neighborhood" and not (natten.HAS_LIBNATTEN and case.dtype == "fp32")


def is_heads_last(case):
    return True


def arguments(case):
    return {"kernel_size": case.window, "dilation": case.dilation, "is_causal": case.is_causal}


def on_grid(case, *tensors):
    """Returns [B, X, Y, ..., H, D] of [B, L, H, D]."""
    return [x.view(len(x), *case.extents, *x.shape[2:]) for x in tensors]


def ways(case, q, k, v):
    function, shape = getattr(natten, AXES[len(case.extents)]), (len(q), case.length, case.heads, case.width)
    options = {"backend": "hopper-fna"}
    if not natten.HAS_LIBNATTEN:
        natten.allow_flex_compile()
        natten.allow_flex_compile_backprop()
        torch._dynamo.reset()
        options = {"backend": "flex-fna", "torch_compile": q.is_cuda}
    return {options["backend"]: lambda: function(*on_grid(case, q, k, v), **arguments(case), **options).reshape(shape)}


def reference(case, q, k, v):
    """Returns the call of its reference kernels, which are its naive ones."""
    from natten.backends import reference as of_natten

    function, shape = getattr(of_natten, f"{AXES[len(case.extents)]}_reference"), (len(q), case.length, case.heads, case.width)
    return {"": lambda: function(*on_grid(case, q, k, v), **arguments(case)).reshape(shape)}
