"""Traces unedited mods to ATen graphs as FlexAttention does: with make_fx over fake scalars."""

import functools
import math
from contextlib import nullcontext

import torch
import torch._inductor  # noqa: F401  make_fx loads it; the first call should not wait for that
from torch._C import _functorch
from torch._decomp import get_decompositions
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.fx.traceback import preserve_node_meta, set_stack_trace
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map_only

from .._calls import line_below
from .._diagnostics import name_of
from .._ir_text import params_of
from .errors import UntranslatableError
from .guards import Ran
from .mistakes import INSTEAD, TORCH, asked, refusal
from .sizes import Sizes

# torch's own formulas for functions of neural networks.
_DECOMPOSED = (
    "addcdiv addcmul celu elu frac gelu hardsigmoid hardswish hardtanh heaviside leaky_relu lerp "
    "log_sigmoid_forward logaddexp logaddexp2 masked_fill mish nan_to_num sgn silu softplus square threshold xlogy"
).split()


_dispatch_modes = torch._C._len_torch_dispatch_stack
modes_before_dispatch = torch._ops._len_torch_dispatch_stack_pre_dispatch
transform, is_jit_tracing = _functorch.peek_interpreter_stack, torch._C._is_tracing


def has_modes():
    """Whether a mode records or watches operations."""
    return _dispatch_modes() > 0 or modes_before_dispatch() > 0


_WITH_MEMORY = {torch.Tensor, torch.nn.Parameter, type(None)}


def have_memory(*tensors):
    """Whether tensors, or None, are of no class that only operators take."""
    return _WITH_MEMORY.issuperset(map(type, tensors))


def is_watched():
    """Whether operations are recorded, watched or transformed."""
    return has_modes() or is_jit_tracing() or transform() is not None or forward_ad._current_level >= 0


@functools.cache
def _decompositions():
    return get_decompositions([getattr(torch.ops.aten, name) for name in _DECOMPOSED])


def number_of(tensor):
    """Returns the number or numbers in a tensor in comparable form: NaN equals NaN, and 0.0 differs from -0.0."""
    found = tensor.detach().reshape(-1).tolist()
    return tuple((math.copysign(1, x), x == x) if isinstance(x, float) and (x != x or x == 0) else x for x in found)


class _Numbers(TorchDispatchMode):
    """Watches which tensors a mod reads the number of. Captured ones are noted in `asked`, by id. A tensor that the mod
    computes from them has no number before launch. `dtype` is that of the last traced tensor that it asked."""

    ASKING = frozenset({"_local_scalar_dense", "allclose", "equal", "is_nonzero", "item"})
    OF_LITERALS = frozenset({"lift_fresh", "lift_fresh_copy"})  # torch.tensor([...]) within the mod

    def __init__(self, name, have_values):
        super().__init__()
        self.name, self.have_values, self.asked, self.computed, self.dtype = name, have_values, {}, {}, None
        self.code = None  # that calls the mod, if nodes shall know their lines

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        operation = function.overloadpacket.__name__
        tensors = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
        captured = [] if operation in self.OF_LITERALS else [x for x in tensors if not isinstance(x, FakeTensor)]
        is_computed = any(id(x) in self.computed for x in tensors)
        if operation in self.ASKING and (captured or is_computed):
            if len(captured) < len(tensors):
                self.refuse(function, tensors)
            self.note(captured)
            with _disable_current_modes():
                return function(*args, **kwargs)
        if operation in self.ASKING and tensors:
            self.dtype = tensors[0].dtype
        if self.code is not None:
            set_stack_trace([line_below(self.code, TORCH)])  # of the nodes that this makes
        result = function(*args, **kwargs)
        if captured or is_computed:
            self.computed.update((id(x), x) for x in tree_iter(result) if isinstance(x, torch.Tensor))
        return result

    def refuse(self, function, tensors):
        self.dtype = next(x.dtype for x in tensors if isinstance(x, FakeTensor))
        raise DataDependentOutputException(function)

    def note(self, tensors):
        for tensor in tensors:
            if not self.have_values or not tensor.is_cpu:
                where = f"on {tensor.device}" if self.have_values else "in a graph"
                raise UntranslatableError(
                    f"{self.name} asks for the number in a captured tensor {where}, which is not known before launch. "
                    f"{INSTEAD}"
                )
            self.asked[id(tensor)] = tensor


class _Captures(TorchFunctionMode):
    """Turns `t[i]` with 0-d integer tensors into a gather; torch would read the number. `stand_ins` maps ids of tensors
    to their replacements. Functions that read memory without an operation report it to `numbers`. In graphs, those that
    ask for sizes get what `sizes` tells."""

    READING = frozenset(
        getattr(torch.Tensor, name) for name in ("__array__", "__dlpack__", "__format__", "__repr__", "numpy", "tolist")
    )  # fmt: skip

    def __init__(self, numbers, stand_ins, sizes):
        super().__init__()
        self.numbers, self.stand_ins, self.sizes = numbers, stand_ins, sizes

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if self.stand_ins is not None:
            stands_in = lambda x: self.stand_ins.get(id(x), x)  # noqa: E731
            args, kwargs = tree_map_only(torch.Tensor, stands_in, (args, kwargs or {}))
            if function is torch.Tensor.item:  # the tensor itself: kernels read numbers in the same way
                return args[0].reshape(())
            if self.sizes.asks(function):
                return self.sizes.asked(function, args, kwargs)
            args, kwargs = self.sizes.taken(function, args, kwargs)
        is_number = function in (torch.Tensor.item, torch.Tensor.tolist)
        if is_number and isinstance(args[0], FakeTensor) and args[0].constant is None:
            self.numbers.refuse(function, args)
        if function is torch.Tensor.__getitem__:
            return self._get(*args)
        if function in (torch.take, torch.Tensor.take):
            return self._get(args[0].reshape(-1), args[1])
        self._check(function, args)
        if function in self.READING and not isinstance(args[0], FakeTensor):
            self.numbers.note(args[:1])
            with _disable_current_modes():
                return function(*args, **(kwargs or {}))
        return function(*args, **(kwargs or {}))

    @staticmethod
    def _check(function, args):
        if function is torch.Tensor.__setitem__ and any(isinstance(x, torch.Tensor) for x in tree_iter(args[1])):
            raise UntranslatableError(
                "the mod writes into a tensor, t[i] = x: a mod is a pure function; use torch.where(h == i, x, t[h])"
            )
        for x in args:
            if isinstance(x, torch.Tensor) and x.layout != torch.strided:
                raise UntranslatableError(
                    f"the mod reads a tensor of layout {x.layout}: capture its .to_dense(), which attnc reads"
                )

    @staticmethod
    def _get(tensor, given):
        _Captures._check(None, (tensor,))
        given = given if isinstance(given, tuple) else (given,)
        is_tensor = [isinstance(item, torch.Tensor) and item.dtype not in (torch.bool, torch.uint8) for item in given]
        if not any(is_tensor) or any(
            isinstance(item, (list, torch.Tensor)) and not tensors for item, tensors in zip(given, is_tensor)
        ):
            return torch.Tensor.__getitem__(tensor, given if len(given) != 1 else given[0])
        # First everything except the tensors; then the tensors, at the remaining axes.
        used = sum(item is not None and item is not ... for item in given)
        plain, indices = [], []
        for item, is_index in zip(given, is_tensor):
            if item is ...:
                plain += [slice(None)] * (tensor.dim() - used)
                indices += [None] * (tensor.dim() - used)
            elif is_index:
                plain.append(slice(None))
                indices.append(item)
            else:
                plain.append(item)
                indices += [] if isinstance(item, int) else [None]
        if any(item != slice(None) for item in plain):
            tensor = torch.Tensor.__getitem__(tensor, tuple(plain))
        return torch.ops.aten.index(tensor, indices)


def trace(function, what, device, stand_ins=None, with_lines=False):
    """Returns (the graph of a mod, `what`, captured tensors whose numbers it read, user code that ran, Sizes). Captured tensors
    are attributes of the graph. `stand_ins` maps the id of a captured tensor without values to the tensor used instead.
    `with_lines`: whether the stack trace of a node is "file:line", which takes as long again."""
    sizes = Sizes(stand_ins is not None, not stand_ins)
    try:
        return _traced(function, what, device, stand_ins, with_lines, sizes)
    except Exception:
        if not sizes.axes:
            raise
    return _traced(function, what, device, stand_ins, with_lines, Sizes(False, not stand_ins))


def _traced(function, what, device, stand_ins, with_lines, sizes):
    dtypes = [torch.float32 if name in ("score", "prob") else torch.int64 for name in params_of(what)]
    scalars = [torch.zeros((), dtype=dtype, device=device) for dtype in dtypes]
    numbers, ran = _Numbers(name_of(function), stand_ins is None), Ran()

    # Wrapped once more, because make_fx reads the names of the parameters, which not every callable has.
    def call(*args):
        with numbers, ran:
            return function(*args)

    numbers.code = call.__code__ if with_lines else None
    try:
        with torch.no_grad(), preserve_node_meta() if with_lines else nullcontext(), _Captures(numbers, stand_ins, sizes):
            graph = make_fx(
                call, decomposition_table=_decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True
            )(*scalars)
    except (DataDependentOutputException, GuardOnDataDependentSymNode, DynamicOutputShapeException) as error:
        raise asked(function, error, numbers.dtype) from None  # without torch's own story, which is of its compiler
    except Exception as error:
        found = refusal(function, error, what)
        if found is None:
            raise
        raise found from None
    return graph, list(numbers.asked.values()), ran.codes, sizes
