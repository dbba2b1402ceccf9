"""attnc's kernels as candidates of FlexAttention's own autotuning, in models that torch.compile compiles.

    import attnc.torch.inductor
    attnc.torch.inductor.install()

Inductor asks its InductorChoices for further candidates when it lowers `flex_attention`. Ours is an operator, which
writes into the buffers that Inductor made for Triton's kernel. Inductor hands over mods in its own IR; their graphs of
ATen operations are those of the node that it lowers. Where attnc has no kernel, Triton's candidates are as they were.
"""

import hashlib
import logging

import sympy
import torch
from torch._inductor import choices, config, ir
from torch._inductor.choices import InductorChoices
from torch._inductor.lowering import empty_strided, full, to_device, to_dtype
from torch._inductor.select_algorithm import AlgorithmSelectorCache, realize_inputs
from torch._inductor.virtualized import V
from torch.nn.attention import flex_attention as flex
from torch.utils._pytree import tree_map, tree_map_only
from torch.utils._sympy.functions import CeilDiv

from .. import __version__
from .calls import line_of
from .errors import UntranslatableError
from .graphs import _translation
from .kernels import mod_of

__all__ = ["install", "uninstall"]

_log = logging.getLogger(__name__)
_FORWARD, _BACKWARD = "append_flex_attention_choices", "append_flex_attention_backward_choices"
_LISTS = slice(2, 10)  # of what BlockMask.as_tuple() gives; block sizes and mask_mod are at its end
_DTYPES = torch.bfloat16, torch.float16, torch.float32


class _Refused(Exception):
    """Why attnc offers no candidate."""

    @classmethod
    def unless(cls, fits, why):
        if not fits:
            raise cls(why)


class _Candidate(ir.ChoiceCaller):
    """A call of an operator of attnc. `arguments` returns its arguments, with nodes of Inductor for tensors; it is given
    the node of the result that has `layout`. `given` are the nodes whose examples benchmarks get from Inductor."""

    def __init__(self, operator, arguments, layout, given):
        super().__init__("attnc", [*given], layout, "")
        self.operator, self.arguments = operator, arguments

    def output_node(self):
        layout = self.layout
        out = empty_strided(layout.size, layout.stride, dtype=layout.dtype, device=layout.device)
        ir.FallbackKernel.create(self.operator, *self.arguments(out))
        return out

    def to_callable(self):
        result, found = object(), []

        def run(*given, out):
            if not found:  # examples do not count
                names = dict.fromkeys(node.get_name() for node in self.input_nodes)
                examples = dict(zip(names, given))
                found.extend(tree_map_only(ir.IRNode, lambda node: _example(node, examples), self.arguments(result)))
            self.operator(*[out if x is result else x for x in found])

        return run

    def benchmark(self, *args, out):
        try:
            return super().benchmark(*args, out=out)
        except Exception as error:  # Triton's candidates are timed all the same
            _log.warning("attnc's kernel cannot be timed: %s", error)
            return float("inf")

    def call_name(self):
        return str(self.operator)

    def hash_key(self):
        text, *_ = self.arguments(None)
        return "attnc-" + hashlib.sha256(f"{__version__} {self.operator} {text}".encode()).hexdigest()

    def info_dict(self):
        return {"backend": "attnc", "kernel_call_name": self.call_name()}


def _example(node, examples):
    """Returns a tensor like that of a node. Examples are of buffers, by name; nodes may be views of these."""
    name, layout, sizes = node.get_name(), node.get_layout(), V.graph.sizevars
    if name not in examples:
        examples[name] = AlgorithmSelectorCache.benchmark_example_value(node)
    base = examples[name]
    size, stride, (offset,) = map(sizes.optimization_hints, (layout.size, layout.stride, [layout.offset]))
    return torch.as_strided(base if base._base is None else base._base, size, stride, offset)


# ---- The node that is lowered -----------------------------------------------------------------------------------


def _values(item):
    """Returns an argument of the node that is lowered, with nodes of Inductor in place of those of the graph."""
    return torch.fx.map_arg(item, lambda node: V.graph.env[node])


def _on_cpu(graph):
    """Returns the graph of a mod with its constants on the CPU, where attnc traces."""
    copy = torch.fx.Graph()
    copy.output(copy.graph_copy(graph.graph, {}))
    for node in copy.nodes:
        moved = lambda x: torch.device("cpu") if isinstance(x, torch.device) else x  # noqa: E731
        node.args, node.kwargs = tree_map(moved, (node.args, node.kwargs))
    return torch.fx.GraphModule(graph, copy)


def _equal(one, other):
    """Whether sizes are equal. If they are symbolic, the answer becomes a guard."""
    return bool(V.graph.sizevars.evaluate_expr(sympy.Eq(one, other)))


class _Capture:
    """A captured tensor: its node, on the device, and a tensor of the same kind without memory."""

    def __init__(self, value, device):
        if isinstance(value, ir.IRNode):
            if value.get_device() != device:
                if value.get_size():
                    raise _Refused(f"a captured tensor is on {value.get_device()}")
                value = to_device(value, device)
            if value.get_dtype() == torch.float64 and not value.get_size():
                value = to_dtype(value, torch.float32)  # a number of Python
        else:
            is_float = isinstance(value, (float, sympy.Float))
            value = full([], value, dtype=torch.float32 if is_float else torch.int64, device=device)
        self.node = realize_inputs(value)
        size, stride = (V.graph.sizevars.guard_int_seq(x) for x in (self.node.get_size(), self.node.get_stride()))
        self.kind = torch.empty_strided(size, stride, dtype=self.node.get_dtype(), device="meta")


class _Node:
    """The flex_attention that is lowered, or its backward pass: its mods, translated, and its block lists."""

    def __init__(self, target, query, key, value, score_mod, block_mask, scale, options, *captures):
        """`captures` are those of score_mod, and those of mask_mod."""
        node = V.graph.current_node
        backend = options.get("BACKEND", "AUTO")
        _Refused.unless(node.target is target, f"{node.target} is lowered")
        _Refused.unless(backend == "AUTO", f"kernel_options ask for {backend}")
        _Refused.unless(not config.autotune_in_subproc, "candidates are timed in a process of their own")
        _Refused.unless(isinstance(scale, (int, float)), "the scale is symbolic")
        self.operands, self.scale, self.captures = (query, key, value), float(scale), {}
        device = query.get_device()
        dtypes = {x.get_dtype() for x in self.operands}
        _Refused.unless(len(dtypes) == 1 and dtypes <= {*_DTYPES}, "operands are of other dtypes, or of several")
        (batch, heads, q_len, _), (kv_batch, kv_heads, kv_len, _) = query.get_size(), key.get_size()
        _Refused.unless(_equal(batch, kv_batch) and _equal(batch, value.get_size()[0]), "keys are shared by the batch")
        problem = batch, heads, kv_heads, q_len, kv_len
        is_known = all(isinstance(x, (int, sympy.Integer)) for x in problem)
        self._translate(score_mod, block_mask[-1], captures, device, tuple(map(int, problem)) if is_known else ())
        self._keep_lists(block_mask, (batch, heads, q_len, kv_len))

    def _translate(self, score_mod, mask_mod, captures, device, problem):
        known = {}

        def capture_of(argument):
            if argument not in known:
                known[argument] = _Capture(_values(argument), device)
            return known[argument]

        self.of_score, self.of_mask = (list(map(capture_of, group)) for group in captures)
        kinds = [[x.kind for x in group] for group in (self.of_score, self.of_mask)]
        mods = [_on_cpu(_values(mod).graph_module) for mod in (score_mod, mask_mod)]
        try:
            plan = _translation(*mods, *kinds, problem)
        except (UntranslatableError, IndexError) as error:
            raise _Refused(str(error)) from error
        _Refused.unless(all(type(at) is int for _, at, _ in plan.tensors), "a mod holds a table")
        both, places = self.of_score + self.of_mask, {name: at for name, at, _ in plan.tensors}
        names = [capture.name for capture in mod_of(plan.text).captures]
        self.captures = {name: both[places[name]] for name in names if name in places}
        self.text, self.numbers = line_of(plan.text), [float(plan.numbers[x]) for x in names if x not in places]

    def _keep_lists(self, block_mask, extents):
        batch, heads, *lengths = extents
        self.blocks = [V.graph.sizevars.guard_int(size) for size in _values(tuple(block_mask[-3:-1]))]
        self.rows, self.columns = [], []
        if all(size == flex._LARGE_SPARSE_BLOCK_SIZE for size in self.blocks):
            return
        _Refused.unless({*self.blocks} <= {128, 256}, f"blocks of the mask are {self.blocks[0]}x{self.blocks[1]}")
        lists = _values(tuple(block_mask[_LISTS]))
        _Refused.unless(lists[0] is not None and lists[4] is not None, "the block mask has no lists by column")
        counts = [CeilDiv(length, size) for length, size in zip(lengths, self.blocks)]
        for group, shape, to in ((lists[:4], counts, self.rows), (lists[4:], counts[::-1], self.columns)):
            for x in [realize_inputs(x) for x in group if x is not None]:
                size = x.get_size()
                fits = all(_equal(a, 1) or _equal(a, b) for a, b in zip(size, (batch, heads)))
                fits = x.get_dtype() == torch.int32 and fits and all(map(_equal, size[2:], shape))
                _Refused.unless(fits, f"the block mask has lists of {x.get_dtype()} {list(size)}")
                to.append(x)

    def arguments(self):
        """Returns the arguments that both operators have."""
        captured = [x.node for x in self.captures.values()]
        return [self.text, *self.operands, captured, self.numbers, self.scale, self.rows, self.columns, self.blocks]


# ---- The hooks --------------------------------------------------------------------------------------------------


def forward_candidate(input_nodes, layout):
    """Returns attnc's candidate for the flex_attention that is lowered, from what the hook is given. Raises _Refused."""
    query, key, value, lse, row_max, *_ = input_nodes
    _, _, _, score_mod, block_mask, scale, options, *captures = V.graph.current_node.args
    options = _values(options)
    node = _Node(
        torch.ops.higher_order.flex_attention, query, key, value, score_mod, block_mask, scale, options, *captures
    )  # fmt: skip
    lse = lse if options.get("OUTPUT_LOGSUMEXP", True) else None
    row_max = row_max if options.get("OUTPUT_MAX", False) else None
    return _Candidate(
        torch.ops.attnc.attention_into.default, lambda out: [*node.arguments(), out, lse, row_max], layout, input_nodes
    )


def backward_candidate(input_nodes, layout, mutated_inputs):
    """Returns the same for the backward pass."""
    query, key, value, lse, _, dout, dq, dv, *_ = input_nodes
    _, _, _, out, _, _, dlse, score_mod, joint, block_mask, scale, options, *captures = V.graph.current_node.args
    node = _Node(
        torch.ops.higher_order.flex_attention_backward, query, key, value, score_mod, block_mask, scale,
        _values(options), *captures,
    )  # fmt: skip
    out, dlse = (x if x is None else realize_inputs(_values(x)) for x in (out, dlse))
    # The joint graph returns the gradients of the score, of four positions, and of captures.
    (results,) = _values(joint).graph_module.graph.find_nodes(op="output")[0].args
    wanting = [capture for capture, of in zip(node.of_score, results[5:], strict=True) if of is not None]
    buffers = dict(zip(wanting, mutated_inputs[2:], strict=True))
    _Refused.unless(len(buffers) == len(wanting), "a tensor that wants a gradient is captured twice")
    names = {name: buffers[capture] for name, capture in node.captures.items() if capture in buffers}
    return _Candidate(
        torch.ops.attnc.attention_backward_into.default,
        lambda dk: [
            *node.arguments(), " ".join(names), out, lse, dout, dlse, dq, dk, dv, [*names.values()]
        ],
        layout, input_nodes,
    )  # fmt: skip


def _offer(choices, candidate, *arguments):
    """Appends attnc's candidate, if it has one."""
    what = V.graph.current_node.target
    try:
        found = candidate(*arguments)
    except _Refused as refused:
        _log.info("no candidate for %s: %s", what, refused)
    except Exception:  # a model compiles as it does without attnc
        _log.warning("no candidate for %s", what, exc_info=True)
    else:
        _log.info("a candidate for %s", what)
        return [*choices, found]
    return choices


def _offering(base):
    """Returns a class of InductorChoices whose candidates are those of `base` and attnc's."""

    class Choices(base):
        def append_flex_attention_choices(self, choices, configs, input_nodes, subgraphs, layout, *others):
            choices = super().append_flex_attention_choices(choices, configs, input_nodes, subgraphs, layout, *others)
            return _offer(choices, forward_candidate, input_nodes, layout)

        def uuid(self):
            """Returns what tells caches of compiled graphs apart."""
            return f"attnc {__version__}", base.uuid(self) if hasattr(base, "uuid") else base.__qualname__

    if hasattr(base, _BACKWARD):

        def append_backward(self, choices, configs, input_nodes, subgraphs, layout, *others, mutated_inputs):
            choices = getattr(super(Choices, self), _BACKWARD)(
                choices, configs, input_nodes, subgraphs, layout, *others, mutated_inputs=mutated_inputs
            )
            return _offer(choices, backward_candidate, input_nodes, layout, mutated_inputs)

        setattr(Choices, _BACKWARD, append_backward)
    return Choices


_installed = []  # what takes back install()


def install() -> None:
    """Makes attnc's kernels candidates of every `torch.nn.attention.flex_attention` that this process compiles from now
    on. Inductor times them next to Triton's, and takes the fastest. Models that are compiled already stay as they are;
    a second call changes nothing. With PyTorch 2.14 it counts for models that this thread compiles.

    Needs the hook of PyTorch 2.14, for the forward pass; that for the backward pass came with 2.15. Raises
    NotImplementedError if this PyTorch lacks the first."""
    if not hasattr(InductorChoices, _FORWARD):
        raise NotImplementedError(
            f"PyTorch {torch.__version__} has no InductorChoices.{_FORWARD}, which came with 2.14: install a later one, "
            "or use attnc.torch.flex_attention in the model"
        )
    if _installed:
        return
    if hasattr(choices, "register_inductor_choices"):
        choices.register_inductor_choices("attnc", _offering(InductorChoices))
        _installed.append(lambda: choices.unregister_inductor_choices("attnc"))
    else:
        previous = config.inductor_choices_class
        _configure(_offering(InductorChoices if previous is None else type(previous())))
        _installed.append(lambda: _configure(previous))


def uninstall() -> None:
    """Takes back what install() did."""
    if _installed:
        _installed.pop()()


def _configure(factory):
    config.inductor_choices_class = factory
    V.set_choices_handler(InductorChoices() if factory is None else factory())  # this thread may have made another
