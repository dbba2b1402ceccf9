"""flex_attention inside graphs of torch.compile, without breaking them, and where operations are recorded.

Mods are functions, and their captures may be computed in the graph, so torch.compile must trace them. It does so for
higher-order operators: PyTorch's `flex_attention`, and `in_graph`, which is traced in the same way. `in_graph` never
reaches a compiler: when the graph is lowered, the traced mods become IR text, and the node becomes attnc::attention. If
torch.compile cannot trace a mod, it breaks the graph, and calls `in_graph` with the functions.

Other recorders (make_fx, torch.jit.trace, torch.export) and watchers (dispatch modes) only see operators, and
FakeTensors have no memory. For these, attention is attnc::attention from the start.
"""

import concurrent.futures
import itertools
import re
import weakref

import torch
from torch._C import DispatchKey
from torch._functorch.pyfunctorch import TransformType
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, get_proxy_mode

from .._diagnostics import of_result
from .._ir_text import DIMS
from ..launch import ALIGNED, Launch, Sequences
from ..prob_mods import functions_of, joined
from .calls import rows_of
from .guards import describe
from .kernels import ANEW
from .operator import attention_of
from .tracing import have_memory, is_jit_tracing, is_watched, transform
from .translation import DTYPE_NAMES, plan_of, translate, translate_traced


class _InGraph(HigherOrderOperator):
    def __init__(self):
        super().__init__("attnc_attention")

    @torch._disable_dynamo
    def __call__(self, query, key, value, score_mod, mask, scale, options, score_captures=(), mask_captures=()):
        """`mask` is (kv_lengths, cu_seqlens, longest) as of attnc::attention, the place of scores as of _with_outputs(), and
        mask_mod. `options` are members of a Launch, `mods` as of attend_in_graph(), and the `names` of outputs in IR text. When traced,
        the mods are graph modules, followed by their captured tensors and by numbers that may change."""
        kv_lengths, cu_seqlens, longest, _, mask_mod = mask
        if not all(isinstance(mod, torch.fx.GraphModule) for mod in (score_mod, mask_mod)):
            options, outputs = {name: option for name, option in options.items() if name not in ("mods", "names")}, None
            if getattr(score_mod, "__code__", None) is _CODE_WITH_OUTPUTS:
                held = dict(zip(_CODE_WITH_OUTPUTS.co_freevars, score_mod.__closure__))
                score_mod, outputs = held["score_mod"].cell_contents, held["outputs"].cell_contents
            return attend_recorded(
                query, key, value, None if score_mod is _identity else score_mod,
                None if mask_mod is _everything else mask_mod, scale,
                Sequences(kv_lengths=kv_lengths, cu_seqlens_q=cu_seqlens, max_q_len=longest), outputs, **options,
            )  # fmt: skip
        return super().__call__(query, key, value, score_mod, mask, scale, options, score_captures, mask_captures)


def _identity(score, b, h, q_idx, kv_idx):
    return score


def _everything(b, h, q_idx, kv_idx):
    return q_idx >= 0


def _with_outputs(score_mod, outputs, scores):
    """Returns what goes where a score_mod goes, with further results: values of outputs, by their names in IR text. Weights
    of the softmax take the place of its score, and `scores`, a captured tensor, that of scores."""

    def all_of(score, b, h, q_idx, kv_idx):
        changed = score_mod(score, b, h, q_idx, kv_idx)
        changed = changed if isinstance(changed, tuple) else (changed,)
        return *changed, *[each(score, scores, b, h, q_idx, kv_idx) for each in functions_of(outputs).values()]

    return all_of


_CODE_WITH_OUTPUTS = _with_outputs(_identity, {}, None).__code__


def _result(graph):
    """Returns the result or results of a traced mod."""
    return graph.graph.output_node().args[0]


def _is_identity(graph):
    """Whether a traced score_mod returns its score."""
    result = _result(graph)
    result = result[0] if isinstance(result, (tuple, list)) else result
    return result is next(iter(graph.graph.nodes))


def _stand_in(tensor, size_of=int):
    """Returns a real tensor of the same kind, to trace a mod with in place of the given one. By int() the program is
    only valid for these sizes, and torch.compile adds a guard. Otherwise its axes that may change are named."""
    shape, strides = (tuple(map(size_of, sizes)) for sizes in (tensor.shape, tensor.stride()))
    result = torch.empty_strided(shape, strides, dtype=_dtype_of(tensor))
    if size_of is not int and result.dtype in DTYPE_NAMES and result.dim() <= 6:
        result.changing_axes = [axis for axis, size in enumerate(tensor.shape) if _is_symbolic(size)]
    return result


def _is_symbolic(size):
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None


_UNKNOWN = 1021  # in place of a size that only a run knows
_STEPS = 5, 160, 2560  # a number of blocks or pages also changes with one of these


def _assignments(sizes):
    """Returns two functions from sizes to ints, that differ for all symbolic ones; or none. Each replaces symbols by
    other numbers, the first by those of the operands at hand. Two symbols have different numbers, also if the operands
    happen to have equal extents."""
    symbolic, hints = [size.node.expr for size in sizes if _is_symbolic(size)], {}
    for size in filter(_is_symbolic, sizes):
        env = size.node.shape_env
        known = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val
        hints.update((symbol, max(int(known.get(symbol, _UNKNOWN)), 2)) for symbol in size.node.expr.free_symbols)
    fixed, assigned = {size for size in sizes if type(size) is int}, []
    for step in (0, *_STEPS) if symbolic else ():
        numbers, taken = {}, {*fixed, *(assigned[0].values() if assigned else ())}
        for place, symbol in enumerate(sorted(hints, key=str), 1):
            number = hints[symbol] + step * place * place
            while number in taken:
                number += 1
            taken.add(number)
            numbers[symbol] = number
        if not assigned or all(expr.xreplace(numbers) != expr.xreplace(assigned[0]) for expr in symbolic):
            assigned.append(numbers)
        if len(assigned) == 2:
            return [
                lambda size, of=of: int(size.node.expr.xreplace(of)) if _is_symbolic(size) else int(size) for of in assigned
            ]
    return []


def _plan_for(captures, problem, translated):
    """Returns the plan of mods with these captures, for a problem. Symbolic sizes stay free if the program is the same
    for others, and are guarded if it is not. `translated` returns the mods over stand-ins for the captures, translated.
    """
    sizes = [*problem, *(size for x in captures for size in (*x.shape, *x.stride()))]
    assignments = _assignments(sizes)
    if assignments:
        entries = [translated([_stand_in(x, size_of) for x in captures]) for size_of in assignments]
        plan = plan_of(entries, [tuple(map(size_of, problem)) for size_of in assignments])
        if plan is not None:
            return plan
    problem = problem if all(type(extent) is int for extent in problem) else ()
    return translated([_stand_in(x) for x in captures]).plan(problem if captures else ())


def _dtype_of(tensor):
    """Returns the dtype of a tensor. A float64 number comes from Python, and mods compute with it in float32."""
    return torch.float32 if tensor.dtype == torch.float64 and tensor.dim() == 0 else tensor.dtype


def _in_thread(function):
    """Runs a function in a new thread, outside of all modes, which belong to this thread."""
    # Without a GPU, FakeTensorMode stores the address of a guard of its thread, which the first backward pass uses.
    torch._C._ensureCUDADeviceGuardSet()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def _names(traced, count):
    """Returns the names of the last `count` parameters of a traced mod: torch.compile names them after their origins."""
    names = [node.name for node in traced.graph.nodes if node.op == "placeholder"]
    return [re.sub("^[gl]_|_$", "", name) for name in names[len(names) - count :]]


_translated = weakref.WeakKeyDictionary()  # traced mask_mod -> {its use: translation}


def _translation(score_mod, mask_mod, score_captures, mask_captures, problem, outputs=(), scores=None):
    """Returns the plan of traced mods. Its captures are places among all captured tensors. `outputs`: the names, in IR text,
    of the last results of score_mod, where the captured tensor of the place `scores` stands for scores."""
    captures = *score_captures, *mask_captures
    form_of = lambda sizes: tuple(size.node.expr if _is_symbolic(size) else int(size) for size in sizes)  # noqa: E731
    kinds = tuple((x.dtype, form_of(x.shape), form_of(x.stride())) for x in captures)
    # A tensor that is captured twice occurs once.
    first = tuple(next(at for at, y in enumerate(captures) if y is x) for x in captures)
    key = (id(score_mod), kinds, first, form_of(problem), outputs, scores)
    of_mask = _translated.setdefault(mask_mod, {})
    found = of_mask.get(key)
    if found is None or found[0]() is not score_mod:

        def translated(stand_ins):
            stand_ins = [stand_ins[at] for at in first]
            of_score, of_mask = stand_ins[: len(score_captures)], stand_ins[len(score_captures) :]
            score = None if _is_identity(score_mod) else _traced(score_mod, of_score)
            mods = _count(score_mod) - len(outputs)
            others = (_traced(score_mod, of_score, at) if _has(score_mod, at, mods) else None for at in (1, 2, 3))
            score = joined(score, *others)
            reduced = {name: _output(score_mod, of_score, mods + at, scores) for at, name in enumerate(outputs)}
            names = _names(score_mod, len(score_captures)) + _names(mask_mod, len(mask_captures))
            return translate_traced(score, _traced(mask_mod, of_mask), stand_ins, names, reduced=reduced)

        plan = _in_thread(lambda: _plan_for(captures, problem, translated))
        found = of_mask[key] = weakref.ref(score_mod), plan
    return found[1]


def _has(graph, at, mods):
    """Whether a traced mod is that of joined() of so many mods, and has the result `at`; one that is the score itself is no
    prob_mod or sink_mod, and may be a weight_mod."""
    return mods > at and (at == 3 or _result(graph)[at] is not next(iter(graph.graph.nodes)))


def _count(graph):
    """Returns the number of results of a traced mod."""
    result = _result(graph)
    return len(result) if isinstance(result, (tuple, list)) else 1


def _output(graph, captures, at, scores):
    """Returns the function of an output, of prob, score and positions: one result of a traced mod over captures."""

    def mod(prob, score, *positions):
        given = [score if place == scores else x for place, x in enumerate(captures)]
        return graph(prob, *positions, *given)[at]

    mod.__wrapped__ = graph  # whose code it is
    return mod


def _traced(graph, captures, at=0):
    """Returns the function of one result of a traced mod over captures."""

    def mod(*args):
        if at == 2:  # a sink, which reads no score
            args = args[2].to(torch.float32), *args, args[2]
        result = graph(*args, *captures)
        return result[at] if isinstance(result, (tuple, list)) else result

    mod.__wrapped__ = graph  # whose code it is
    return mod


def _tensor_of(captured, device):
    """Returns a tensor on the device. Numbers that a graph is not specialised on are read by the kernel."""
    if isinstance(captured, torch.Tensor):
        return captured.to(device, _dtype_of(captured))
    dtype = torch.float32 if isinstance(captured, (float, torch.SymFloat)) else torch.int64
    return torch.full((), captured, dtype=dtype, device=device)


def _tensors(plan, captures, query, key):
    """Returns the tensors of a plan, by name; tables made anew, for recorders. Raises IndexError if one is too short."""
    made = lambda table: torch.tensor(table.tolist(), dtype=table.dtype, device=query.device)  # noqa: E731
    tensors = {
        name: _tensor_of(captures[at], query.device) if type(at) is int else made(at) for name, at, _ in plan.tensors
    }
    for name, _, capture in plan.tensors:
        if capture.shape and not any(capture.users):  # only its extents are asked for
            tensors[name] = tensors[name].detach()
    extents, shapes = dict(zip(DIMS, _extents(query, key))), {name: x.shape for name, x in tensors.items()}
    if any(isinstance(extent, torch.SymInt) for extent in (*extents.values(), *itertools.chain(*shapes.values()))):
        # else plans are made for these extents
        is_true = getattr(symbolic_shapes, "guard_or_false", bool)
        plan.check(extents, shapes, is_true)
    return tensors


def _extents(query, key):
    """Returns B, H, HKV, Q_LEN and KV_LEN, which may be symbolic."""
    return *query.shape[:2], key.shape[1], query.shape[2], key.shape[2]


def _lowered(query, key, value, score_mod, mask, scale, options, score_captures=(), mask_captures=()):
    """Returns attnc::attention of traced mods."""
    kv_lengths, cu_seqlens, longest, scores, mask_mod = mask
    options = dict(options)
    mods, names = options.pop("mods"), options.pop("names")
    if mods is not None and _count(score_mod) != mods + len(names):
        result = _result(score_mod)
        raise of_result(None, "score_mod", "score-result", "a tuple" if isinstance(result, tuple) else "a list")
    scores = next((place for place, x in enumerate(score_captures) if x is scores), None)
    query, key, value = rows_of(query), rows_of(key), rows_of(value)
    problem = _extents(query, key)
    score_captures, mask_captures = (
        [_tensor_of(x, query.device) for x in captures] for captures in (score_captures, mask_captures)
    )
    plan = _translation(score_mod, mask_mod, score_captures, mask_captures, problem, names, scores)
    captures = [*score_captures, *mask_captures]
    sequences = Sequences(kv_lengths=kv_lengths, cu_seqlens_q=cu_seqlens, max_q_len=longest)
    launch = Launch(plan.numbers, scale, ANEW, sequences, mod=plan.text, **options)
    return attention_of(launch, query, key, value, _tensors(plan, captures, query, key))


in_graph = _InGraph()
in_graph.py_impl(DispatchKey.Autograd)(_lowered)
in_graph.py_impl(DispatchKey.CompositeExplicitAutograd)(_lowered)
for _mode in (FakeTensorMode, FunctionalTensorMode, ProxyTorchDispatchMode):

    def _lowered_in(mode, *args):
        with mode:
            return _lowered(*args)

    in_graph.py_impl(_mode)(_lowered_in)
for _transform in (TransformType.Grad, TransformType.Jvp, TransformType.Vmap):
    in_graph.py_impl(_transform)(lambda _, *arguments: _lowered(*arguments))


def _is_traced():
    """Makes torch.compile trace in_graph. Returns False if this PyTorch cannot."""
    try:
        from torch._dynamo.variables import higher_order_ops as known

        kind = known.FlexAttentionHigherOrderVariable
        if hasattr(known, "_hop_name_to_variable_class"):
            known._hop_name_to_variable_class.setdefault("attnc_attention", kind)
        else:  # PyTorch 2.6 has a chain of names there
            kind, of_any = _traced_class(known, kind), known.TorchHigherOrderOperatorVariable
            make = of_any.make
            of_any.make = staticmethod(
                lambda value, source=None, **how: (kind if value is in_graph else make)(value, source, **how)
            )
    except (ImportError, AttributeError):
        return False
    return True


def _traced_class(known, base):
    """Returns a class that traces in_graph as `base` traces PyTorch's operator, whatever the number of results."""
    from torch._dynamo.variables.builder import wrap_fx_proxy

    class Traced(base):
        def call_function(self, tx, args, kwargs):
            query, key, value, score_mod, mask, scale, options = self.normalize_to_args(args, kwargs)
            score_mod, score_captures = self.create_wrapped_node(tx, query, score_mod, "score_mod")
            mask_mod, mask_captures = self.create_wrapped_node(tx, query, mask.items[-1], "mask_fn")
            for node in (score_mod.node, mask_mod.node):
                node.meta["example_value"] = tx.output.nn_modules[node.target]
            operands = [query, key, value, known.TupleVariable(mask.items[:-1], source=mask.source), scale, options]
            (*operands, mask, scale, options), _ = known.proxy_args_kwargs(operands, {})
            given = *operands, score_mod, (*mask, mask_mod), scale, options, score_captures, mask_captures
            return wrap_fx_proxy(tx=tx, proxy=tx.output.create_proxy("call_function", self.value, given, {}))

    return Traced


is_traced = _is_traced()


def attend_in_graph(query, key, value, score_mod, mask_mod, scale, sequences=ALIGNED, mods=1, outputs=None, **options):
    """Returns (out, lse, row_max) and outputs, as attend() does. `mods`: the number of results of score_mod, which is then
    that of joined(); None: unknown. `options` are other members of a Launch."""
    score_mod, scores = _identity if score_mod is None else score_mod, None
    if outputs:
        scores = query.new_empty((), dtype=torch.float32)
        score_mod = _with_outputs(score_mod, outputs, scores)
    mask_mod = _everything if mask_mod is None else mask_mod
    mask = sequences.kv_lengths, sequences.cu_seqlens_q, sequences.max_q_len, scores, mask_mod
    options |= {"mods": mods, "names": tuple(functions_of(outputs))}
    return in_graph(query, key, value, score_mod, mask, scale, options)


def is_recorded(*tensors):
    """Whether operations are watched, or tensors are of classes that need operators."""
    return is_watched() or not have_memory(*tensors)


def attend_recorded(query, key, value, score_mod, mask_mod, scale, sequences=ALIGNED, outputs=None, **options):
    """Returns what attend_in_graph() does, through the operator. Raises UntranslatableError if a mod reads
    the number in a captured tensor that is recorded, and NotImplementedError for derivatives of other derivatives in graphs."""
    device = query.device
    are_values_recorded = get_proxy_mode() is not None or is_jit_tracing() or transform() is not None

    def translated():
        reduced = functions_of(outputs)
        functions = [function for function in (score_mod, mask_mod, *reduced.values()) if function is not None]
        problem = _extents(query, key)
        description = describe(*functions)
        captured = description.tensors
        if not captured or not are_values_recorded and have_memory(query, *captured):
            translation = translate(score_mod, mask_mod, device=device, problem=problem, outputs=outputs)
            return translation.plan, translation.captured, translation.given()[2]
        plan = _plan_for(
            captured, problem,
            lambda stand_ins: translate_traced(
                score_mod, mask_mod, stand_ins, description.names, {id(x): y for x, y in zip(captured, stand_ins)}, reduced
            ),
        )  # fmt: skip
        return plan, captured, plan.numbers

    plan, captured, numbers = _in_thread(translated)
    query, key, value = rows_of(query), rows_of(key), rows_of(value)
    launch = Launch(numbers, float(scale), ANEW, sequences, mod=plan.text, **options)
    return attention_of(launch, query, key, value, _tensors(plan, captured, query, key))
