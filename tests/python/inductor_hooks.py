"""Puts the hooks of later PyTorch, for candidates of FlexAttention's autotuning, into one that lacks them.

PyTorch 2.14 calls InductorChoices.append_flex_attention_choices, and 2.15 also that of the backward pass, after it made
Triton's choices. Here the calls come first in the function that selects among choices: with the same nodes, layout and
mutated buffers. Configurations, subgraphs and options, which attnc does not read, are empty.
"""

import contextlib
import unittest.mock

from torch._inductor import config
from torch._inductor.choices import InductorChoices
from torch._inductor.kernel.flex import flex_attention as lowering
from torch._inductor.virtualized import V

FORWARD, BACKWARD = "append_flex_attention_choices", "append_flex_attention_backward_choices"
HAS_FORWARD, HAS_BACKWARD = (hasattr(InductorChoices, name) for name in (FORWARD, BACKWARD))
_NOTHING = {}, 128, 128  # options, block sizes


def _handler():
    """Returns the newest handler, for all threads as in PyTorch 2.15: backward passes are lowered in one of autograd."""
    return (config.inductor_choices_class or InductorChoices)()


def _after_triton(choices, name, inputs, layout):
    if name == "flex_attention" and not HAS_FORWARD:
        return getattr(_handler(), FORWARD)(choices, [], inputs[:9], [], layout, *_NOTHING)
    if name == "flex_attention_backward" and not HAS_BACKWARD:
        joint = V.graph.env[V.graph.current_node.args[8]].graph_module
        (results,) = joint.graph.find_nodes(op="output")
        count = sum(x is not None for x in results.args[0][5:])
        mutated = [*inputs[6:8], *inputs[len(inputs) - count :]]
        return getattr(_handler(), BACKWARD)(choices, [], inputs[:16], [], layout, *_NOTHING, mutated_inputs=mutated)
    return choices


@contextlib.contextmanager
def hooks(seen=lambda choices: None):
    """Has PyTorch call the hooks that it lacks. `seen` is given the choices of each selection."""
    select = lowering.autotune_select_algorithm

    def selecting(name, choices, inputs, layout, **options):
        choices = _after_triton(choices, name, inputs, layout)
        seen([*choices])
        return select(name, choices, inputs, layout, **options)

    with contextlib.ExitStack() as stack:
        for name, is_there in ((FORWARD, HAS_FORWARD), (BACKWARD, HAS_BACKWARD)):
            if not is_there:
                setattr(InductorChoices, name, lambda self, choices, *_, **__: choices)
                stack.callback(delattr, InductorChoices, name)
        stack.enter_context(unittest.mock.patch.object(lowering, "autotune_select_algorithm", selecting))
        yield
