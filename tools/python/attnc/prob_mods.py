"""What acts on the weights of the softmax: a prob_mod, dropout, which is one, and a sink_mod; or replaces it: a weight_mod.

They go where the score_mod goes, as one function with several results, so that whatever traces, compares or keeps
functions of an attention knows two: a score_mod and a mask_mod.
"""

import collections
import functools
import keyword
import numbers
import re

from ._diagnostics import check_mod
from .mod import Mod
from .names import Reduced, random


def joined(score_mod, prob_mod, sink_mod=None, weight_mod=None):
    """Returns the function that goes where a score_mod goes, of a score_mod, a prob_mod, a sink_mod and a weight_mod, each of
    which may be None. Its results: the changed score; the changed weight, the sink, the weight of a weight_mod. The score
    itself stands for those that are missing before others."""
    if prob_mod is None and sink_mod is None and weight_mod is None:
        return score_mod
    mods = {"score_mod": score_mod, "prob_mod": prob_mod, "sink_mod": sink_mod, "weight_mod": weight_mod}
    for what, mod in mods.items():
        check_mod(what, mod)

    def all_of(score, b, h, q_idx, kv_idx):
        changed = score if score_mod is None else score_mod(score, b, h, q_idx, kv_idx)
        weight = score if prob_mod is None else prob_mod(score, b, h, q_idx, kv_idx)
        if weight_mod is not None:
            return changed, weight, score, weight_mod(score, b, h, q_idx, kv_idx)
        if sink_mod is None:
            return changed, weight
        sink = sink_mod(b, h, q_idx)
        return changed, weight, q_idx * 0 + sink if isinstance(sink, float) else sink  # graphs return tensors

    return all_of


def check_weight_mod(prob_mod, dropout_p, sink_mod, wants_lse, wants_max=False, outputs=None):
    """Raises ValueError if a call with a weight_mod asks for something of the softmax."""
    asked = {"prob_mod": prob_mod, "dropout_p": dropout_p or None, "sink_mod": sink_mod, "outputs": outputs or None}
    names = [name for name, given in asked.items() if given is not None]
    names += ["lse"] if wants_lse else ["the row maximum"] if wants_max else []
    if names:
        raise ValueError(f"weight_mod takes the place of the softmax, and {names[0]} is of the softmax: leave one of them out")


_CODE_OF_ALL = joined(None, random).__code__


def parts(mod):
    """Returns the score_mod, prob_mod, sink_mod and weight_mod, or None for each, of what joined() returned."""
    if getattr(mod, "__code__", None) is not _CODE_OF_ALL:
        return mod, None, None, None
    held = dict(zip(_CODE_OF_ALL.co_freevars, mod.__closure__))
    return tuple(held[name].cell_contents for name in ("score_mod", "prob_mod", "sink_mod", "weight_mod"))


_KEPT = {"B H KV_LEN": "kv", "B H Q_LEN": "q", "B H": "h"}


def is_name(name):
    """Whether it can be the name of an output."""  # in words that torch.compile traces
    is_word = isinstance(name, str) and name.isascii() and name.isidentifier() and not name.startswith("_")
    return is_word and not keyword.iskeyword(name)


def functions_of(outputs):
    """Returns what the outputs of an attention reduce, by their names in IR text, in its order. Raises TypeError and ValueError."""
    if not isinstance(outputs or {}, dict):
        raise TypeError(f"outputs is a {type(outputs).__name__}: give a dict, the outputs by their names")
    functions = {}
    for name, output in (outputs or {}).items():
        if not isinstance(output, Reduced):
            raise TypeError(f"output {name!r} is a {type(output).__name__}: give attnc.reduce_sum(f, axes) or reduce_max")
        if not is_name(name):
            raise ValueError(f"output {name!r} has no name that a Python variable could have")
        if output.axes not in _KEPT:
            raise ValueError(f"output {name} is over {output.axes!r}: give one of {', '.join(map(repr, _KEPT))}")
        check_mod("output", output.function)
        functions[f"reduce_{output.kind}_{_KEPT[output.axes]}_{name}"] = output.function
    return {name: functions[name] for name in sorted(functions)}


def in_order(outputs):
    """Returns the names of the outputs of an attention, in the order in which its mod has them."""
    return [name.split("_", 3)[3] for name in functions_of(outputs)]


def aux_type(*names):
    """Returns the type of an auxiliary output with these members. Its values can be pickled."""
    return _aux_type(names)


aux_type._dynamo_marked_constant = True  # torch.compile calls it while it traces


@functools.lru_cache(maxsize=1024)
def _aux_type(names):
    made = collections.namedtuple("AuxOutput", names, module=__name__)
    made.__reduce__ = lambda self: (_aux_output, (self._fields, *self))
    return made


def _aux_output(names, *members):
    return aux_type(*names)(*members)


def check_outputs(outputs, members):
    """Raises TypeError and ValueError for outputs that cannot be next to these members of an auxiliary output."""
    functions_of(outputs)
    # NOTE: not hasattr() of aux_type(), whose cache torch.compile warns of.
    if taken := [name for name in outputs or () if name in (*members, "count", "index")]:
        raise ValueError(f"output {taken[0]} has the name of a member of AuxOutput: take another one")


def check_dropout(dropout_p):
    """Raises ValueError unless it is a share of weights that can be dropped."""
    if not isinstance(dropout_p, numbers.Real) or not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p is {dropout_p!r}: give the share of weights to drop, a number in [0, 1)")


def rate_of(dropout_p):
    """Returns the share of weights that is dropped: the multiple of 1/256 next to `dropout_p` if that is within 2 % of it, and
    of what it leaves; else `dropout_p`. Such rates need a third of the random bits, and FlashAttention's are multiples as well."""
    near = round(256 * dropout_p) / 256
    return near if abs(near - dropout_p) <= min(dropout_p, 1 - dropout_p) / 50 else dropout_p


def dropped(prob_mod, dropout_p, seed, where):
    """Returns a prob_mod, which may be None, with dropout behind it: dsl/mods/dropout.py as a function. `where` chooses
    between values, as torch.where does. `seed` is an integer of 0 dims."""
    rate = rate_of(dropout_p)

    def dropout(prob, b, h, q_idx, kv_idx):
        if prob_mod is not None:
            prob = prob_mod(prob, b, h, q_idx, kv_idx)
        return where(random(seed, b, h, q_idx, kv_idx) < rate, 0.0, prob / (1 - rate))

    return dropout


@functools.lru_cache(maxsize=1024)
def read_by_prob(text):
    """Returns the names of the tensors that the factor of a prob_mod of IR text reads. They have no gradients."""
    if Mod.parse_ir(text).walks_twice:
        return set()
    lines, found = dict(line.split(" = ", 1) for line in text.splitlines() if line.startswith("%")), set()
    values = re.findall(r"^output prob\(.*-> (%\w+)", text, re.MULTILINE)
    for value in values:
        line = lines.pop(value, "")
        found.update(re.findall(r"^load \w+ (\w+)", line))
        values.extend(re.findall(r"%\w+", line))
    return found
