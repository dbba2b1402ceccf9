#!/usr/bin/env python3
"""Mod files are legal Python: CPython imports each mod of the library, with what it says it needs, and attnc's names mean
there what they say."""
import importlib.util
import re
import sys
import unittest

import needs

sys.path.insert(0, str(needs.ROOT / "tests/dsl"))
import torch_stub

try:
    import torch
except ImportError:  # mods that import it are run with a stand-in
    sys.modules["torch"] = torch_stub.torch
import attnc
from attnc import _philox


def run(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


class Names(unittest.TestCase):
    def test_cpython_imports_each_mod_of_the_library(self):
        paths = sorted((needs.ROOT / "dsl/mods").glob("*.py"))
        self.assertGreaterEqual(len(paths), 40)
        for path in paths:
            with self.subTest(path.stem):
                made = run(path)
                functions = [name for name in ("score_mod", "mask_mod", "prob_mod") if callable(getattr(made, name, None))]
                self.assertTrue(functions)

    def test_captures_are_annotations_that_python_can_look_at(self):
        annotations = run(needs.ROOT / "dsl/mods/alibi.py").__annotations__
        self.assertEqual(annotations["slopes"].__origin__, attnc.f32)
        self.assertEqual(annotations["slopes"].__args__, (attnc.H,))
        self.assertEqual(repr(attnc.i32[attnc.B, attnc.KV_LEN, 4]), "attnc.i32[attnc.B, attnc.KV_LEN, 4]")

    def test_functions_of_a_mod_run_once_its_names_are_bound(self):
        alibi = run(needs.ROOT / "dsl/mods/alibi.py")
        alibi.slopes = [0.5, 0.25]
        self.assertEqual(alibi.score_mod(1.0, 0, 1, 8, 4), 0.0)
        self.assertEqual([alibi.mask_mod(0, 0, 3, key) for key in (3, 4)], [True, False])
        capped = run(needs.ROOT / "dsl/mods/softcap_approx.py")
        capped.cap = 2.0
        self.assertAlmostEqual(capped.score_mod(2.0, 0, 0, 0, 0), 1.5231883)

    def test_helpers_combine_masks_as_flexattention_does(self):
        causal, near = lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k <= 2
        both, any_of = attnc.and_masks(causal, near, attnc.noop_mask), attnc.or_masks(causal, near)
        self.assertEqual([both(0, 0, 4, key) for key in range(6)], [False, False, True, True, True, False])
        self.assertTrue(all(any_of(0, 0, 4, key) for key in range(6)))
        self.assertIs(attnc.bool(3), True)

    def test_choice_is_the_mod_that_the_sequence_names(self):
        causal, near = lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k <= 2
        mask = attnc.choice([1, 0], causal, near)
        self.assertEqual([mask(0, 0, 4, key) for key in range(6)], [False, False, True, True, True, True])
        self.assertEqual([mask(1, 0, 4, key) for key in range(6)], [True, True, True, True, True, False])
        score = attnc.choice((0, 1), lambda score, b, h, q, k: score, lambda score, b, h, q, k: score * h)
        self.assertEqual([score(0.5, b, 4, 1, 1) for b in range(2)], [0.5, 2.0])
        for which in ([0, 2], [0, -1]):
            with self.assertRaisesRegex(ValueError, f"which.1. is {which[1]}, and there are 2 mods: give 0 to 1"):
                attnc.choice(which, causal, near)
        with self.assertRaisesRegex(TypeError, "takes at least one mod"):
            attnc.choice([])
        with self.assertRaisesRegex(TypeError, "a mod takes"):
            mask(0, 0, 4)

    def test_random_is_philox_by_position(self):
        words = _philox.philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))
        self.assertEqual(words, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1))  # of Random123
        draws = [attnc.random(-3, 0, 1, q, kv) for q in range(24) for kv in range(80)]
        self.assertGreater(len(set(draws)), len(draws) - 4)  # of 2^24
        self.assertTrue(all(0 <= x < 1 and x * 2**24 == int(x * 2**24) for x in draws))
        self.assertAlmostEqual(sum(draws) / len(draws), 0.5, delta=0.03)
        self.assertEqual(attnc.random(-3 + 2**64, 0, 1, 2, 3 - 2**32), draws[2 * 80 + 3])
        with self.assertRaisesRegex(TypeError, "`random` needs an int as `seed`, not 0.5"):
            attnc.random(0.5, 0, 0, 0, 0)

    def test_random_of_arrays_has_the_bits_of_numbers(self):
        try:
            import numpy
        except ImportError as error:
            self.skipTest(str(error))
        q, kv = numpy.arange(40)[:, None], numpy.arange(100, dtype=numpy.int32)
        draws = attnc.random(2**40 + 7, 1, 2, q, kv)
        self.assertEqual((draws.shape, draws.dtype), ((40, 100), numpy.float32))
        self.assertEqual(draws[30, 71], attnc.random(2**40 + 7, 1, 2, 30, 71))
        self.assertEqual(attnc.random(numpy.int32(-1), 1, 2, 30, 71), attnc.random(-1, 1, 2, 30, 71))
        with self.assertRaisesRegex(TypeError, "needs an int as `kv_idx`, not an array of float64"):
            attnc.random(7, 0, 0, q, kv / 2)

    def test_the_package_has_the_names_that_the_language_says(self):
        text = re.sub(r"\s+", " ", (needs.ROOT / "dsl/SPEC.md").read_text())
        functions = re.search(r"`attnc`: `([a-z_ ]+)`, the dtypes", text)[1]
        dtypes, extents = re.search(r"dtypes: `([a-z0-9 ]+)`", text)[1], re.search(r"of the extents `([A-Z_ ]+)`", text)[1]
        for name in f"{functions} {dtypes} {extents}".split():
            self.assertTrue(hasattr(attnc, name), name)
            self.assertEqual(name in attnc.__all__, name != "bool", name)  # `import *` must not hide Python's


if __name__ == "__main__":
    unittest.main()
