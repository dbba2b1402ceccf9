#!/usr/bin/env python3
"""Runs tests of FlashAttention and NATTEN against attnc.flash_attn and attnc.natten, and counts what passes.

  python3 bench/peers_tests.py flash2 CHECKOUT [--count N] [--seed N] [--only TEXT] [--longest N] [--device cpu]

`flash2` and `flash3` take a checkout of github.com/Dao-AILab/flash-attention, `natten` one of github.com/SHI-Labs/NATTEN.
Their files are read there, and none is changed. Needs pytest, and einops for FlashAttention's.

FlashAttention's tests have hundreds of thousands of parameter sets: each test gets `--count` of them, drawn by `--seed`.
Without --device cpu they need a GPU. On the CPU, attnc's fp64 reference computes; `--longest` leaves out longer sequences.
A test of NATTEN makes many comparisons, which are counted. Its reference is that of its library, or, if that is not
built, the definition in tests/python/natten_test.py. "refused" counts tests that end in a NotImplementedError.
"""

import argparse
import collections
import functools
import importlib
import itertools
import math
import pathlib
import random
import sys
import types

import pytest
import torch
from torch.overrides import TorchFunctionMode

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools" / "python"), str(ROOT / "tests" / "python")]
import natten_test
from attnc import flash_attn, natten
from attnc.natten import _arguments


class OnCpu(TorchFunctionMode):
    """What asks for "cuda" gets the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def stand_in_for_cuda():
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(total_memory=1 << 40, multi_processor_count=1)
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *_: None
    torch.set_default_device = lambda *_: None
    OnCpu().__enter__()


class Counting:
    """A plugin of pytest: draws parameter sets, and counts outcomes."""

    def __init__(self, options):
        self.options, self.outcomes, self.reasons = options, collections.Counter(), collections.Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc):
        marks = [mark for mark in metafunc.definition.iter_markers("parametrize")]
        if not marks:
            return
        names, every = [], []
        for mark in marks:
            of_mark = [name.strip() for name in mark.args[0].split(",")]
            names += of_mark
            every.append([value if len(of_mark) > 1 else (value,) for value in mark.args[1]])
        lengths = [at for at, name in enumerate(names) if name.startswith("seqlen") and "new" not in name]

        def fits(values):
            return max([values[at] for at in lengths if type(values[at]) is int], default=0) <= self.options.longest

        draw, chosen = random.Random(f"{self.options.seed}{metafunc.function.__name__}"), {}
        for _ in range(100 * self.options.count):
            values = tuple(itertools.chain(*(draw.choice(of_mark) for of_mark in every)))
            if fits(values) and len(chosen) < self.options.count:
                chosen[values] = None
        metafunc.definition.own_markers[:] = [mark for mark in metafunc.definition.own_markers if mark.name != "parametrize"]
        metafunc.parametrize(",".join(names), list(chosen))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        if call.when != "call" and report.passed:
            return
        outcome, name = report.outcome, item.originalname or item.name
        if call.excinfo is not None and not report.skipped:
            error = call.excinfo.value
            outcome = "refused" if isinstance(error, NotImplementedError) else "failed"
            line = str(error).strip().splitlines()[:1]
            self.reasons[f"{outcome}: {name}: {type(error).__name__}: {''.join(line)[:160]}"] += 1
        self.outcomes[name, outcome] += 1


def module(name, **members):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(members)
    return made


def functions_of(module):
    return {name: getattr(module, name) for name in module.__all__}


def flash2(checkout, options):
    package = module("flash_attn", __path__=[str(checkout / "flash_attn")], **functions_of(flash_attn))
    package.flash_attn_interface = module(
        "flash_attn.flash_attn_interface", _get_block_size_n=lambda *_: 128, USE_TRITON_ROCM=False
    )
    if options.device == "cpu":
        module("flash_attn.ops.triton.rotary", apply_rotary=None)
        importlib.import_module("flash_attn.layers.rotary").apply_rotary_emb = rotated
    return [checkout / "tests/test_flash_attn.py"]


def rotated(x, cos, sin, seqlen_offsets=0, interleaved=False):
    """Returns x [B, L, H, D] rotated by rows of cos and sin from `seqlen_offsets` [B] on, as a kernel does."""
    places = torch.as_tensor(seqlen_offsets).view(-1, 1) + torch.arange(x.shape[1])
    return flash_attn._rotated(x, cos, sin, places.expand(len(x), -1), interleaved)


def flash3(checkout, options):
    functions = functions_of(flash_attn)

    def in_its_order(function, first):
        """FlashAttention-3 has no dropout, and returns (out, lse)."""

        @functools.wraps(function)
        def called(*arguments, **others):
            assert len(arguments) <= first  # by name beyond the operands
            found = function(*arguments, **others)
            return found[:2] if isinstance(found, tuple) else found

        return called

    functions["flash_attn_func"] = in_its_order(flash_attn.flash_attn_func, 3)
    functions["flash_attn_varlen_func"] = in_its_order(flash_attn.flash_attn_varlen_func, 7)
    module(
        "flash_attn_interface", get_scheduler_metadata=lambda *_, **__: None, flash_attn_combine=None, **functions
    )
    module("flash_attn", __path__=[str(checkout / "flash_attn")])
    module("flash_attn.flash_attn_interface")
    if options.device == "cpu":
        module("flash_attn.ops.triton.rotary", apply_rotary=None)
        importlib.import_module("flash_attn.layers.rotary").apply_rotary_emb = rotated
    sys.path.insert(0, str(checkout / "hopper"))
    return [checkout / "hopper/test_flash_attn.py"]


def natten_tests(checkout, options):
    sys.path[:0] = [str(checkout / "src"), str(checkout)]
    theirs, testing = importlib.import_module("natten"), importlib.import_module("natten.utils.testing")
    for name in ("is_not_supported", "kernels_not_supported"):
        for each in [one for one in vars(testing) if one.startswith("skip_if") and one.endswith(name)]:
            if "blackwell" not in each:
                setattr(testing, each, lambda: lambda function: function)
    testing.supports_bfloat16 = testing.supports_float16 = lambda device: True
    functional, configs = importlib.import_module("natten.functional"), "natten.backends.configs"
    for name in ("neighborhood_attention_generic", "attention", "merge_attentions", "na1d", "na2d", "na3d"):
        setattr(functional, name, getattr(natten, name))
    for kind in ("cutlass", "cutlass_hopper"):  # tiles of its kernels: one is enough
        of_kind = importlib.import_module(f"{configs}.{kind}")
        of_kind.get_all_backward_configs = lambda _: [(None, None)]
        of_kind.get_all_forward_configs = lambda _, is_hopper=kind != "cutlass": [((None, None), None) if is_hopper else (None, None)]
    reference = importlib.import_module("natten.backends.reference")
    if not theirs.HAS_LIBNATTEN:

        def by_definition(q, k, v, *, return_lse, **how):
            every = _arguments(q.dim() - 3, *(how[name] for name in ("kernel_size", "stride", "dilation", "is_causal")))
            return natten_test.expected(q, k, v, *every)[0].to(q.dtype)

        reference.reference_fna_generic = by_definition
    return [checkout / "tests/test_fna.py", checkout / "tests/test_hopper_fna.py"]


def count_comparisons(counting, longest):
    """Counts what NATTEN's tester compares, in place of its tests, which end at the first difference."""
    tester = importlib.import_module("tests.utils").NattenBackendTester
    make, test = tester.__init__, tester.test

    def made(self, *arguments, **how):
        self.is_left_out = math.prod(how["input_shape"]) > longest
        if not self.is_left_out:
            make(self, *arguments, **how | {"reference_backend": "reference"})

    def tested(self, **how):
        if self.is_left_out:
            return counting.outcomes.update([("comparisons", "left out")])
        try:
            test(self, **how)
            outcome = "passed"
        except NotImplementedError as error:
            outcome = "refused"
            counting.reasons[f"refused: {error}"[:200]] += 1
        except Exception as error:
            outcome = "failed"
            line = " ".join(str(error).split())[:200]
            what = {name: getattr(self, name) for name in ("input_shape", "kernel_size", "stride", "dilation", "is_causal")}
            counting.reasons[f"failed: {type(error).__name__}: {line}: {what}, {how['dtype']}"] += 1
        counting.outcomes["comparisons", outcome] += 1

    tester.__init__, tester.test = made, tested


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("whose", choices=("flash2", "flash3", "natten"))
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="as -k of pytest")
    parser.add_argument("--longest", type=int, default=1 << 20)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    sys.path.append(str(options.checkout))
    if options.device == "cpu":
        stand_in_for_cuda()
    counting = Counting(options)
    make = {"flash2": flash2, "flash3": flash3, "natten": natten_tests}[options.whose]
    files = make(options.checkout.resolve(), options)
    if options.whose == "natten":
        count_comparisons(counting, options.longest)
    arguments = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--rootdir", str(options.checkout), "-k", options.only]
    pytest.main([*arguments, *map(str, files)], plugins=[counting])
    for reason, count in counting.reasons.most_common():
        print(f"{count:6} {reason}")
    by_test = collections.defaultdict(dict)
    for (name, outcome), count in counting.outcomes.items():
        by_test[name][outcome] = count
    for name, outcomes in by_test.items():
        print(f"{name}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))


if __name__ == "__main__":
    main()
