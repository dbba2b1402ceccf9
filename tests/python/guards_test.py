#!/usr/bin/env python3
"""What makes a mod be traced again, and what must not; what changed numbers do to its text; what is refused, and how.

  python3 guards_test.py [-v ...]

Prints SKIPPED where torch is not installed.
"""

import collections
import dataclasses
import enum
import functools
import gc
import math
import os
import sys
import types
import unittest
import weakref
from unittest import mock

import needs

needs.modules("torch")
import torch
from attnc.torch import translation
from attnc.torch.errors import UntranslatableError
from attnc.torch.translation import translate

LIMIT = 3
CONFIG = types.ModuleType("config_of_a_user")
CONFIG.limit = 3
sys.modules[CONFIG.__name__] = CONFIG


class Traces:
    """Counts how often mods are traced."""

    def __enter__(self):
        real = translation.trace
        self.count = 0

        def counted(*args):
            self.count += 1
            return real(*args)

        self.patch = mock.patch.object(translation, "trace", counted)
        self.patch.__enter__()
        return self

    def __exit__(self, *exception):
        self.patch.__exit__(*exception)


class Holder:
    shift = 1

    def __init__(self, limit):
        self.limit, self.unused = limit, 0

    def mask(self, b, h, q, k):
        return self.inner(q, k)

    def inner(self, q, k):
        return q - k < self.limit + self.shift

    @property
    def doubled(self):
        return self.limit * 2


def changes():
    """Pairs of a mask_mod and a function that changes what it depends on."""
    cell = 3

    def of_cell(b, h, q, k):
        return q - k < cell

    def set_cell():
        nonlocal cell
        cell = 4

    yield "closure", of_cell, set_cell

    def of_nested(b, h, q, k):
        return of_cell(b, h, q, k)

    cell = 3
    yield "closure of a closure", of_nested, set_cell
    yield "global", lambda b, h, q, k: q - k < LIMIT, lambda: globals().update(LIMIT=4)
    yield "attribute of a module", lambda b, h, q, k: q - k < CONFIG.limit, lambda: setattr(CONFIG, "limit", 4)
    CONFIG.limit = 3
    holder = Holder(3)
    yield "attribute", holder.mask, lambda: setattr(holder, "limit", 4)
    owner = Holder(5)
    yield "attribute of a class", owner.mask, lambda: setattr(Holder, "shift", 4)
    keeper = Holder(3)
    yield "property", lambda b, h, q, k: q - k < keeper.doubled, lambda: setattr(keeper, "limit", 4)
    named = Holder(3)
    yield "getattr", lambda b, h, q, k: q - k < getattr(named, "limit"), lambda: setattr(named, "limit", 4)

    def of_import(b, h, q, k):
        import config_of_a_user

        return q - k < config_of_a_user.limit

    yield "module imported inside", of_import, lambda: setattr(CONFIG, "limit", 4)

    def of_import_from(b, h, q, k):
        from config_of_a_user import limit

        return q - k < limit

    CONFIG.limit = 3
    yield "name imported inside", of_import_from, lambda: setattr(CONFIG, "limit", 4)
    items = [1, 3]
    yield "list", lambda b, h, q, k: q - k < items[1], lambda: items.__setitem__(1, 4)
    table = {"limit": 3}
    yield "dict", lambda b, h, q, k: q - k < table["limit"], lambda: table.update(limit=4)

    def of_default(b, h, q, k, limit=3):
        return q - k < limit

    yield "default", of_default, lambda: setattr(of_default, "__defaults__", (4,))

    def of_two(limit, b, h, q, k):
        return q - k < limit[0]

    limits = [3]
    yield "partial", functools.partial(of_two, limits), lambda: limits.__setitem__(0, 4)
    kind = [3]
    yield "type of a number", lambda b, h, q, k: q - k < kind[0] / 1 + 0 * q, lambda: kind.__setitem__(0, 3.0 + 1)

    @dataclasses.dataclass
    class Config:
        limit: int = 3

    config = Config()
    yield "dataclass", lambda b, h, q, k: q - k < config.limit, lambda: setattr(config, "limit", 4)
    module = torch.nn.Module()
    module.register_buffer("limit", torch.tensor([3]))
    yield (
        "buffer",
        lambda b, h, q, k: q - k < module.limit[0],
        lambda: module.register_buffer("limit", torch.tensor([3, 4])),
    )


class Special:
    """Answers operators and builtins with its limit."""

    def __init__(self, limit=3):
        self.limit = limit

    def __getitem__(self, key):
        if key:
            raise IndexError
        return self.limit

    def __len__(self):
        return self.limit

    def __iter__(self):
        return iter([self.limit])

    def __contains__(self, number):
        return number < self.limit

    def __bool__(self):
        return self.limit > 3

    def __float__(self):
        return float(self.limit)

    def __index__(self):
        return self.limit

    def __eq__(self, other):
        return self.limit == other

    def __lt__(self, other):
        return self.limit < other

    def __rsub__(self, other):
        return other - self.limit

    def __neg__(self):
        return -self.limit

    def __getattr__(self, name):
        if name == "computed":
            return self.limit
        raise AttributeError(name)

    def __enter__(self):
        return self.limit

    def __exit__(self, *exception):
        pass


class Called(Special):
    def __call__(self):
        return self.limit


class Descriptor:
    def __get__(self, owner, kind=None):
        return owner.limit + 1


class Ring(collections.deque):
    pass


class Derived(Holder):
    window = Descriptor()

    def inner(self, q, k):
        return super().inner(q, k)


class Layer(torch.nn.Module):
    limit = 3

    def forward(self, q, k):
        return q - k < self.limit


class Mode(enum.Enum):
    NEAR = 1

    def window(self):
        return LIMIT


@dataclasses.dataclass
class Pair:
    limit: int = 3
    unused: int = 0


def special_changes():
    """As changes(), of what no name in the code shows."""
    by_operators = {
        "item": lambda x: x[0],
        "len": len,
        "iteration": lambda x: next(value for value in x),
        "unpacking": lambda x: [*x][0],
        "contains": lambda x: 4 if 3 in x else 3,
        "truth": lambda x: 4 if x else 3,
        "not": lambda x: 3 if not x else 4,
        "float": float,
        "index": lambda x: range(9)[x],
        "call": lambda x: x(),
        "equality": lambda x: 3 if x == 3 else 4,
        "equality of items": lambda x: 3 if 3 in [x] else 4,
        "order": lambda x: 4 if x < 4 else 3,
        "negation": lambda x: -(-x),
        "__getattr__": lambda x: x.computed,
        "with": entered,
    }
    for name, operation in by_operators.items():
        held = Called() if name == "call" else Special()
        mod = lambda b, h, q, k, operation=operation, held=held: q - k < operation(held)  # noqa: E731
        yield name, mod, lambda held=held: setattr(held, "limit", 4)
    reflected = Special()
    yield "reflected operator", lambda b, h, q, k: q - k - reflected < 0, lambda: setattr(reflected, "limit", 4)
    derived = Derived(3)
    yield "descriptor", lambda b, h, q, k: q - k < derived.window, lambda: setattr(derived, "limit", 4)
    yield "overridden method", Derived(4).mask, lambda: setattr(Holder, "shift", 5)
    layer = Layer()
    yield "forward", lambda b, h, q, k: layer(q, k), lambda: setattr(layer, "limit", 4)

    def of_function(b, h, q, k):
        return q - k < of_function.limit

    of_function.limit = 3
    yield "attribute of a function", of_function, lambda: setattr(of_function, "limit", 4)
    yield "method of an enum", lambda b, h, q, k: q - k < Mode.NEAR.window(), lambda: globals().update(LIMIT=4)
    yield "what a class is made with", lambda b, h, q, k: q - k < Wide().limit, lambda: globals().update(LIMIT=5)
    pair = Pair()
    as_dict = lambda b, h, q, k: q - k < dataclasses.asdict(pair)["limit"]  # noqa: E731
    yield "fields as a dict", as_dict, lambda: setattr(pair, "limit", 4)
    same = Pair()
    is_same = lambda b, h, q, k: q - k < (3 if same == Pair() else 4)  # noqa: E731
    yield "equality of a dataclass", is_same, lambda: setattr(same, "limit", 4)


class Wide:
    def __init__(self):
        self.limit = LIMIT


def entered(held):
    with held as limit:
        return limit


def make(window, scale=1.0, table=None):
    table = torch.zeros(8) if table is None else table

    def score_mod(score, b, h, q, k):
        return torch.where(q - k <= window, score * scale + table[h], -float("inf"))

    return score_mod


class GuardsTest(unittest.TestCase):
    def test_changes_are_seen(self):
        for name, mask_mod, change in changes():
            with self.subTest(name), Traces() as traces:
                before = translate(None, mask_mod)
                translate(None, mask_mod)
                self.assertEqual(traces.count, 1)
                change()
                after = translate(None, mask_mod)
                self.assertEqual(traces.count, 2)
                self.assertNotEqual((before.text, before.scalars), (after.text, after.scalars))
        globals().update(LIMIT=3)
        Holder.shift = 1

    def test_what_operators_read_is_seen(self):
        for name, mask_mod, change in special_changes():
            with self.subTest(name), Traces() as traces:
                before = translate(None, mask_mod)
                count = traces.count
                translate(None, mask_mod)
                self.assertEqual(traces.count, count)  # nothing is traced each time
                change()
                after = translate(None, mask_mod)
                self.assertGreater(traces.count, count)
                self.assertNotEqual((before.text, before.scalars), (after.text, after.scalars))
                count = traces.count
                translate(None, mask_mod)
                self.assertEqual(traces.count, count)
            globals().update(LIMIT=3)
            Holder.shift = 1

    def test_what_code_does_not_read_is_no_change(self):
        holder, pair = Holder(6), Pair()
        with Traces() as traces:
            for unused in (7, 8):
                translate(None, holder.mask)
                translate(None, lambda b, h, q, k: q - k < pair.limit)
                holder.unused = pair.unused = unused
        self.assertEqual(traces.count, 2)

    def test_what_hides_its_contents_is_traced_each_time(self):
        ring, holder, pair, name = Ring([3]), Holder(3), Pair(), "limit"
        environment = mock.patch.dict(os.environ, LIMIT="3")
        package, inner = types.ModuleType("package_of_a_user"), types.ModuleType("package_of_a_user.math")
        package.__path__, inner.limit = [], 3
        modules = mock.patch.dict(sys.modules, {module.__name__: module for module in (package, inner)})
        text = "def relative(b, h, q, k):\n    from .math import limit\n    return q - k < limit"
        exec(text, scope := {"__package__": package.__name__, "__name__": "package_of_a_user.mods"})
        for reads, mask_mod, change in (
            ("a class of a library", lambda b, h, q, k: q - k < ring[0], lambda: ring.__setitem__(0, 4)),
            ("a computed name", lambda b, h, q, k: q - k < getattr(holder, name), lambda: setattr(holder, name, 4)),
            (
                "all fields",
                lambda b, h, q, k: q - k < getattr(pair, dataclasses.fields(pair)[0].name),
                lambda: setattr(pair, "limit", 4),
            ),
            ("a tuple of fields", lambda b, h, q, k: q - k < dataclasses.astuple(pair)[1], lambda: setattr(pair, "unused", 4)),
            ("a relative import", scope["relative"], lambda: setattr(inner, "limit", 4)),
            ("the environment", lambda b, h, q, k: q - k < int(os.environ["LIMIT"]), lambda: os.environ.update(LIMIT="4")),
        ):
            with self.subTest(reads), environment, modules:
                before = translate(None, mask_mod)
                change()
                after = translate(None, mask_mod)
                self.assertNotEqual((before.text, before.scalars), (after.text, after.scalars))

    def test_guards_are_there_while_a_profiler_or_a_debugger_works(self):
        for set_hook in (sys.setprofile, sys.settrace):
            held, seen = Special(), []
            set_hook(lambda frame, event, argument: seen.append(event))
            try:
                mask_mod = lambda b, h, q, k: q - k < len(held)  # noqa: E731
                before = translate(None, mask_mod)
                held.limit = 4
                after = translate(None, mask_mod)
            finally:
                set_hook(None)
            self.assertNotEqual((before.text, before.scalars), (after.text, after.scalars))
            self.assertTrue(seen)

    def test_numbers_in_tensors(self):
        """A number that a mod asks a captured tensor for is a number like others."""
        asks = {
            "int": lambda x: int(x),
            "float": lambda x: float(x),
            "item": lambda x: x.item(),
            "tolist": lambda x: x.tolist(),
            "truth": lambda x: 4 if x else 3,
            "numpy": lambda x: float(x.numpy()),
            "slice": lambda x: torch.ones(9)[: int(x)].sum(),
            "arange": lambda x: torch.arange(x).sum(),
            "of torch": lambda x: torch.full((2,), x.item())[1],
            "math": lambda x: math.sqrt(x),
            "text": lambda x: float(str(x)[7:-1]),
        }
        for name, ask in asks.items():
            with self.subTest(name):
                window = torch.tensor(3.0)
                mask_mod = lambda b, h, q, k, ask=ask, window=window: q - k < ask(window)  # noqa: E731
                with Traces() as traces:
                    before = translate(None, mask_mod)
                    translate(None, mask_mod)
                    self.assertEqual(traces.count, 1)
                    window.fill_(0)
                    after = translate(None, mask_mod)
                    self.assertNotEqual((before.text, before.scalars), (after.text, after.scalars))
                    window.fill_(3)
                    translate(None, mask_mod)
                    window.fill_(0)
                    translate(None, mask_mod)
                    self.assertEqual(traces.count, 2)

    def test_numbers_in_tensors_are_those_that_are_asked_for(self):
        first, second, flag = torch.tensor(3), torch.tensor(5), torch.tensor(False)

        def mask_mod(b, h, q, k):
            if flag:
                return q - k < int(second)
            return q - k < int(first) + second

        def texts():
            found = translate(None, mask_mod)
            return found.text, found.scalars

        seen = [texts()]
        second.fill_(6)  # a tensor as yet
        self.assertEqual(texts(), seen[0])
        flag.fill_(True)
        seen.append(texts())
        self.assertNotIn("tensor", seen[1][0])
        second.fill_(7)
        seen.append(texts())
        flag.fill_(False)
        first.fill_(-3)
        seen.append(texts())
        self.assertEqual(len(set(map(repr, seen))), 4)
        zero = torch.tensor(0.0)
        by_sign = lambda s, b, h, q, k: s * math.copysign(2, zero)  # noqa: E731
        plus = translate(by_sign).text
        zero.neg_()
        self.assertNotEqual(plus, translate(by_sign).text)

    def test_windows_in_buffers(self):
        module = torch.nn.Module()
        module.register_buffer("window", torch.tensor(5))
        found = []
        for window in (5, 6, 300):
            module.window.fill_(window)
            found.append(translate(None, lambda b, h, q, k: q - k < int(module.window)))
        self.assertEqual(found[1].text, found[2].text)  # a scalar of the launch
        self.assertEqual([list(x.scalars.values()) for x in found[1:]], [[6, 0], [300, 0]])  # halves of an int64

    def test_what_code_of_others_does(self):
        """Functions that the walk cannot come to are run each time."""
        hook = torch.nn.Identity()
        limits = [3]
        hook.register_forward_pre_hook(lambda module, inputs: (inputs[0] + limits[0],))
        mask_mod = lambda b, h, q, k: hook(q) >= k  # noqa: E731
        before = translate(None, mask_mod).text
        limits[0] = 4
        self.assertNotEqual(before, translate(None, mask_mod).text)

    def test_new_closures_of_a_factory_are_not_traced_again(self):
        with Traces() as traces:
            first = translate(make(5))
            table = torch.ones(8)
            again = translate(make(5, table=table))
        self.assertEqual(traces.count, 1)
        self.assertIs(first.text, again.text)
        self.assertIs(again.tensors["table"], table)

    def test_shapes_dtypes_and_identity_of_tensors_count(self):
        one, other = torch.zeros(8), torch.zeros(8)

        def both(a, b_):
            return lambda score, b, h, q, k: score + a[h] * b_[k]

        with Traces() as traces:
            translate(both(one, other))
            translate(both(other, one))
            self.assertEqual(traces.count, 1)
            self.assertEqual(list(translate(both(one, one)).tensors), ["a"])
            translate(both(one, torch.zeros(9)))
            translate(both(one, torch.zeros(8, dtype=torch.bfloat16)))
        self.assertEqual(traces.count, 4)

    def test_numbers_that_change_become_scalars(self):
        texts = [translate(make(window, table=torch.zeros(4))) for window in (5, 6, 7, 300)]
        self.assertNotEqual(texts[0].text, texts[1].text)
        self.assertEqual(texts[1].text, texts[2].text)
        self.assertEqual(texts[2].text, texts[3].text)
        self.assertEqual([list(t.scalars.values()) for t in texts[1:]], [[6], [7], [300]])
        self.assertIn("scalar n", texts[1].text)
        # Then another one, too; the first value is a scalar by now.
        floats = [translate(make(window, scale, torch.zeros(4))) for window, scale in ((5, 1.0), (5, 0.5), (9, 0.25))]
        self.assertEqual(floats[1].text, floats[2].text)
        self.assertEqual(sorted(floats[2].scalars.values()), [0.25, 9])

    def test_extents_that_change_become_free(self):
        def of(size):
            table = torch.zeros(size)
            return translate(lambda score, b, h, q, k: score + table[(q - k).abs()])

        texts = [of(size).text for size in (100, 101, 102)]
        self.assertNotEqual(texts[0], texts[1])
        self.assertEqual(texts[1], texts[2])
        self.assertIn("dim N", texts[1])

    def test_sizes_that_change_become_scalars(self):
        def of(size):
            doc = torch.arange(size)
            return translate(None, lambda b, h, q, k: (doc[torch.clamp(k, max=doc.shape[0] - 1)] >= len(doc) // 2) & (q < doc.size(0)))

        found = [of(size) for size in (100, 102, 130, 77)]
        self.assertNotEqual(found[0].text, found[1].text)
        self.assertEqual(len({x.text for x in found[1:]}), 1)
        self.assertEqual([sorted(x.scalars.values()) for x in found[1:]], [[n // 2, n - 1, n] for n in (102, 130, 77)])

    def test_extents_of_the_problem_are_named(self):
        def of(length, batch):
            document_id = torch.zeros(batch, length, dtype=torch.int32)
            mask_mod = lambda b, h, q, k: document_id[b, q] == document_id[b, k]
            return translate(None, mask_mod, problem=(batch, 4, 4, length, length)).text

        self.assertIn("tensor document_id: i32[B, KV_LEN]", of(64, 2))
        self.assertEqual(of(64, 2), of(200, 3))

    def test_what_cannot_be_compared_is_traced_each_time(self):
        def opaque(b, h, q, k):
            return q - k < globals()["LIMIT"]

        with Traces() as traces:
            translate(None, opaque)
            translate(None, opaque)
        self.assertEqual(traces.count, 2)

    def test_sets_and_what_has_no_contents_to_see(self):
        heads = {1, 2}
        mask_mod = lambda b, h, q, k: (q >= k) & torch.tensor([i in heads for i in range(4)])[h]  # noqa: E731
        with Traces() as traces:
            translate(None, mask_mod)
            translate(None, mask_mod)
            self.assertEqual(traces.count, 1)
            heads.add(3)
            translate(None, mask_mod)
            self.assertEqual(traces.count, 2)
            limits = collections.deque([3])
            queue = lambda b, h, q, k: q - k < limits[0]  # noqa: E731
            translate(None, queue)
            translate(None, queue)
            self.assertEqual(traces.count, 4)

    def test_modules_of_torch(self):
        embedding = torch.nn.Embedding(64, 4)
        with Traces() as traces:
            for _ in range(2):
                translation = translate(lambda s, b, h, q, k: s + embedding((q - k).abs())[h])
        self.assertEqual(traces.count, 1)
        self.assertIs(list(translation.tensors.values())[0], embedding.weight)
        call = lambda s, b, h, q, k: s + embedding((q - k).abs())[h]  # noqa: E731
        with Traces() as traces:
            translate(call)
            embedding = torch.nn.Embedding(64, 4)
            self.assertIs(list(translate(call).tensors.values())[0], embedding.weight)
        self.assertEqual(traces.count, 1)

    def test_captured_tensors_are_not_kept(self):
        holder = Holder(torch.zeros(8))
        seen = [weakref.ref(holder), weakref.ref(holder.limit)]

        def translated(held):
            return translate(lambda s, b, h, q, k: s + held.limit[h] * functools.partial(max, held.shift)(1)).text

        self.assertIn("f32[8]", translated(holder))
        del holder
        gc.collect()
        self.assertEqual([reference() for reference in seen], [None, None])

    def test_large_windows_fit(self):
        window = sys.maxsize
        self.assertIn("i64", translate(None, lambda b, h, q, k: q - k < window).text)


class RefusalTest(unittest.TestCase):
    def refused(self, score_mod=None, mask_mod=None):
        with self.assertRaises(UntranslatableError) as caught:
            translate(score_mod, mask_mod)
        return str(caught.exception)

    def test_operations_that_are_not_there_are_named(self):
        table = torch.zeros(8)
        self.assertIn("aten.sort", self.refused(lambda s, b, h, q, k: s + table.sort().values[h]))
        self.assertIn("aten.digamma", self.refused(lambda s, b, h, q, k: torch.digamma(s)))
        self.assertIn("position of a minimum", self.refused(lambda s, b, h, q, k: s + table.max(0).indices))

    def test_steering_by_tensors(self):
        def branch(s, b, h, q, k):
            return s if q > k else s * 2

        for mod in (branch, lambda s, b, h, q, k: s * q.item(), lambda s, b, h, q, k: s * int(q)):
            self.assertRegex(self.refused(mod), r"torch\.where|did you mean `q(\.long\(\))?`")

    def test_objects_whose_getattr_raises_any_exception(self):
        class Table:
            scale = 2.0

            def __getattr__(self, name):
                return {}[name]

        table = Table()
        self.assertIn("mul f32 %score", translate(lambda score, b, h, q, k: score * table.scale).text)

    def test_numbers_of_what_is_computed_of_tensors(self):
        table = torch.tensor([2.0, 3.0])
        for ask in (
            lambda: table[0].item(),
            lambda: int(table.sum()),
            lambda: 2 if table[0] > 1 else 3,
            lambda: float(table.detach()[0]),
            lambda: max(table[0], torch.tensor(1.0)),
            lambda: 2 if table[0] in [torch.tensor(2.0)] else 3,
            lambda: (table[0] + torch.tensor(1.0)).item(),
            lambda: int(torch.equal(table, torch.tensor([2.0, 3.0]))),
            lambda: int(torch.allclose(table, torch.tensor([2.0, 3.0]))),
        ):
            self.assertRegex(self.refused(lambda s, b, h, q, k: s * ask()), r"guards_test.py:\d+:\d+: error: (.*\n){3}note: ")
        # Those of literals are known.
        known = translate(lambda s, b, h, q, k: torch.cos(s) / torch.sin(s) * torch.tensor(7.5).item())
        self.assertIn("7.5", known.text)

    @unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
    def test_numbers_on_a_gpu(self):
        window = torch.tensor(3, device="cuda")
        with self.assertRaisesRegex(UntranslatableError, "captured tensor on cuda:0"):
            translate(None, lambda b, h, q, k: q - k < int(window), device="cuda")

    def test_results(self):
        self.assertIn("!= 0", self.refused(None, lambda b, h, q, k: q & 1))
        table = torch.zeros(8)
        self.assertIn("shape (8,)", self.refused(lambda s, b, h, q, k: s + table))
        self.assertIn("NoneType", self.refused(lambda s, b, h, q, k: None))

    def test_captures(self):
        doubles, seen = torch.zeros(8, dtype=torch.float64), torch.zeros(8)
        self.assertIn("doubles.float()", self.refused(lambda s, b, h, q, k: s + doubles[h]))
        self.assertIn("float64", self.refused(lambda s, b, h, q, k: s.double()))

        def writes(s, b, h, q, k):
            seen.add_(1)
            return s

        self.assertIn("pure function", self.refused(writes))

    def test_views_that_are_written_through(self):
        def writes(s, b, h, q, k):
            copy = s.clone()
            copy.view(1).add_(1)
            return copy

        self.assertIn("pure function", self.refused(writes))


if __name__ == "__main__":
    unittest.main()
