"""flex_attention inside of graphs of torch.compile, which it does not break.

Mods are functions, and what they capture may be computed in the graph; so torch.compile has to trace them. It does so for
higher-order operators: `flex_attention` is one of PyTorch's, and `in_graph` is another one that is traced in the same way.
It never reaches a compiler: when the graph is lowered, the traced mods become IR text, and it becomes attnc::attention.
"""

import threading
import weakref

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

from .autograd import rows_of
from .kernels import ALIGNED, mod_of
from .operator import attention_op, line_of
from .translation import translate_traced


class _InGraph(HigherOrderOperator):
    def __init__(self):
        super().__init__("attnc_attention")

    def __call__(
        self, query, key, value, score_mod, mask, scale, options, score_captures=(), mask_captures=()
    ):  # fmt: skip
        """`mask`: as of attnc::attention kv_lengths, cu_seqlens and longest; and mask_mod. Traced, the mods are graph modules, whose captured tensors and
        numbers that may change follow."""
        return super().__call__(query, key, value, score_mod, mask, scale, options, score_captures, mask_captures)


def _identity(score, b, h, q_idx, kv_idx):
    return score


def _everything(b, h, q_idx, kv_idx):
    return q_idx >= 0


def _is_identity(graph):
    """Whether a traced score_mod returns its score."""
    nodes = list(graph.graph.nodes)
    result = nodes[-1].args[0]
    result = result[0] if isinstance(result, (tuple, list)) else result
    return result is nodes[0]


def _stand_in(tensor):
    """A real tensor of the same kind, that a mod can be traced with wherever the other one stands for. What a program is
    made for holds for these sizes alone, so int() is asked for, on which torch.compile makes a guard."""
    return torch.empty_strided(
        [int(size) for size in tensor.shape], [int(stride) for stride in tensor.stride()], dtype=tensor.dtype
    )


def _in_thread(function):
    """Outside of all modes, which are of this thread."""
    results = []

    def run():
        try:
            results.append((function(), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    result, error = results[0]
    if error is not None:
        raise error
    return result


_translated = weakref.WeakKeyDictionary()  # traced mask_mod -> {how it is used: translation}


def _translation(score_mod, mask_mod, score_captures, mask_captures, problem):
    """The plan of traced mods; its captures are places among all that are captured."""
    captures = *score_captures, *mask_captures
    kinds = tuple((x.dtype, tuple(map(int, x.shape)), tuple(map(int, x.stride()))) for x in captures)
    # Of a tensor that is captured twice, there is one.
    first = tuple(next(at for at, y in enumerate(captures) if y is x) for x in captures)
    key = (id(score_mod), kinds, first, problem)
    of_mask = _translated.setdefault(mask_mod, {})
    found = of_mask.get(key)
    if found is None or found[0]() is not score_mod:

        def translated():
            stand_ins = [_stand_in(x) for x in captures]
            stand_ins = [stand_ins[at] for at in first]
            of_score, of_mask = stand_ins[: len(score_captures)], stand_ins[len(score_captures) :]
            traced_score = None if _is_identity(score_mod) else lambda *args: _value(score_mod(*args, *of_score))
            return translate_traced(traced_score, lambda *args: _value(mask_mod(*args, *of_mask)), stand_ins, problem)

        found = of_mask[key] = weakref.ref(score_mod), _in_thread(translated)
    return found[1]


def _value(result):
    return result[0] if isinstance(result, (tuple, list)) else result


def _tensor_of(captured, device):
    """Numbers that a graph is not compiled for are read where the kernel is."""
    if isinstance(captured, torch.Tensor):
        return captured.to(device)
    return torch.full((), captured, dtype=torch.int32, device=device)


def _lowered(query, key, value, score_mod, mask, scale, options, score_captures=(), mask_captures=()):
    """attnc::attention of traced mods."""
    kv_lengths, cu_seqlens, longest, mask_mod = mask
    query, key, value = rows_of(query), rows_of(key), rows_of(value)
    problem = (*query.shape[:2], key.shape[1], query.shape[2], key.shape[2])
    problem = problem if all(type(extent) is int for extent in problem) else ()
    score_captures, mask_captures = (
        [_tensor_of(x, query.device) for x in captures] for captures in (score_captures, mask_captures)
    )
    plan = _translation(score_mod, mask_mod, score_captures, mask_captures, problem)
    captures = [*score_captures, *mask_captures]
    tensors = {name: captures[source] for name, source, _ in plan.tensors}
    declared = mod_of(plan.text).captures
    tensors = [tensors[capture.name] for capture in declared if capture.kind == "tensor"]
    scalars = [float(plan.numbers[capture.name]) for capture in declared if capture.kind != "tensor"]
    wanted = None
    if torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value, *tensors)):
        names = [capture.name for capture in declared if capture.kind == "tensor"]
        wanted = " ".join(name for name, x in zip(names, tensors) if x.requires_grad and x.is_floating_point())
    return attention_op(
        line_of(plan.text), query, key, value, tensors, scalars, scale, wanted, options["wants_max"], kv_lengths, cu_seqlens,
        longest,
    )  # fmt: skip


in_graph = _InGraph()
in_graph.py_impl(DispatchKey.Autograd)(_lowered)
in_graph.py_impl(DispatchKey.CompositeExplicitAutograd)(_lowered)
for _mode in (FakeTensorMode, FunctionalTensorMode, ProxyTorchDispatchMode):

    def _lowered_in(mode, *args):
        with mode:
            return _lowered(*args)

    in_graph.py_impl(_mode)(_lowered_in)


def _is_traced():
    """Makes torch.compile trace it; False: this PyTorch cannot."""
    try:
        from torch._dynamo.variables import higher_order_ops as known

        known._hop_name_to_variable_class.setdefault("attnc_attention", known.FlexAttentionHigherOrderVariable)
    except (ImportError, AttributeError):
        return False
    return True


is_traced = _is_traced()


def attend_in_graph(query, key, value, score_mod, mask_mod, scale, wants_max, sequences=ALIGNED):
    """(out, lse, row_max), as of attend()."""
    return in_graph(
        query, key, value, _identity if score_mod is None else score_mod,
        (sequences.kv_lengths, sequences.cu_q, sequences.max_q, _everything if mask_mod is None else mask_mod), scale,
        {"wants_max": wants_max},
    )  # fmt: skip
