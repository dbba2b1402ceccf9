"""Mods that requests to vLLM choose by name. Write a class in a module of yours:

    import attnc.vllm_requests

    class Requests(attnc.vllm_requests.RequestMods):
        mods = {"causal": (None, None), "prefix": (None, prefix_of_100)}

and start vLLM with `--logits-processors my_module:Requests`. A request with `vllm_xargs` {"attnc_mod": "prefix"} has
that pair of a score_mod and a mask_mod, where None is the layer's own; one without has the first pair. Requests of all
kinds share a launch.

vLLM tells logits processors, and nothing else, what a request's arguments are. This one changes no logits.
"""

import typing

from vllm.v1.sample.logits_processor import LogitsProcessor as FirstProcessor
from vllm.v1.sample.logits_processor import MoveDirectionality
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

from .torch.serving import NamedMods


class RequestMods(LogitsProcessor, FirstProcessor):
    """A logits processor of both of vLLM's model runners, which keeps what requests choose. `mods` maps names to pairs."""

    mods: typing.ClassVar[dict[str, tuple]] = {}
    numbers: typing.ClassVar[dict[int, int]]  # of the mods, by a request's place in the runner's tables

    def __init_subclass__(cls) -> None:
        cls.numbers = {}
        cls.named = NamedMods(cls.mods, f"{cls.__module__}.{cls.__qualname__}.mods")

    def __init__(self, *_: typing.Any):
        self.numbers.clear()

    @classmethod
    def validate_params(cls, sampling_params: typing.Any) -> None:
        cls.named.number_of(sampling_params.extra_args)

    def add_request(self, req_idx: int, sampling_params: typing.Any) -> bool:
        self.numbers[req_idx] = self.named.number_of(sampling_params.extra_args)
        return False

    def update_state(self, batch_update: typing.Any) -> None:
        """Keeps places by the first runner's changes of its batch."""
        if batch_update is None:
            return
        for index in batch_update.removed:
            self.numbers.pop(index, None)
        for index, sampling_params, *_ in batch_update.added:
            self.add_request(index, sampling_params)
        for one, other, direction in batch_update.moved:
            first, second = self.numbers.pop(one, 0), self.numbers.pop(other, 0)
            self.numbers[other] = first
            if direction == MoveDirectionality.SWAP:
                self.numbers[one] = second

    def apply(self, logits: typing.Any, *_: typing.Any) -> typing.Any:
        return logits

    def is_argmax_invariant(self) -> bool:
        return True


def of_model(processors: typing.Sequence[typing.Any] | None) -> type[RequestMods] | None:
    """Returns the class among the logits processors of a model, which are classes or "module:name"."""
    import pkgutil

    for processor in processors or ():
        found = pkgutil.resolve_name(processor) if isinstance(processor, str) else processor
        if isinstance(found, type) and issubclass(found, RequestMods):
            return found
    return None
