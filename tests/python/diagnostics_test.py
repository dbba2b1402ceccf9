#!/usr/bin/env python3
"""Mistakes in mods of PyTorch and JAX are told in the words of the text front end, at the place in the source.

  ATTNC_COMMAND=attnc ATTNC_LIBRARY=libattnc.so python3 diagnostics_test.py

Tests each door whose library is installed. Prints SKIPPED if there is none.
"""

import ast
import functools
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
import warnings

import needs

needs.modules("numpy")
import attnc  # noqa: E402
import numpy as np  # noqa: E402
from attnc import _diagnostics  # noqa: E402
from attnc.errors import UntranslatableError  # noqa: E402

HEAD = "import math\nimport numpy as np\nTABLE = [0.5, 1.0]\nBY_HEAD = {0: 0.5, 1: 1.0}; NUMBERS = np.arange(16.0)\n"
SCORE, MASK = "def score_mod(score, b, h, q, k):\n", "def mask_mod(b, h, q, k):\n"
# By id: mods that both the front end and a tracer refuse. The front end decides at once what it says of them.
ALIKE = (
    ("traced-condition", SCORE + "    if q >= k:\n        return score\n    return score * 2\n"),
    ("traced-condition", SCORE + "    cond = q - k\n    if cond:\n        score = score * 2\n    return score\n"),
    ("traced-condition", SCORE + "    return score if (q >= k) else -score\n"),
    ("traced-condition", SCORE + "    return score + sum([1.0 for x in TABLE if score > x])\n"),
    ("traced-assertion", SCORE + "    assert k > 3\n    return score\n"),
    ("traced-loop", SCORE + "    for i in range(k):\n        score = score + i\n    return score\n"),
    ("traced-list-index", SCORE + "    é = score; return é + TABLE[h]\n"),
    ("returns-none", MASK + "    q >= k\n"),
    ("returns-none", "score_mod = lambda score, b, h, q, k: None\n"),
    ("score-result", SCORE + "    def inner():\n        return 1\n    return (score, score)\n"),
    ("mask-result", MASK + "    return (q - k)\n"),
    ("mask-result", "mask_mod, other = (lambda b, h, q, k: q + k), (lambda b, h, q, k: q < k)\n"),
    ("mask-result", "def made():\n    def mask_mod(b, h, q, k):\n        return k * 0.5\n    return mask_mod\nmask_mod = made()\n"),
    ("mask-result", MASK + "    return 1\n"),
    ("comparison-precedence", MASK + "    return q >= k & q - k <= 10\n"),
    ("comparison-precedence", MASK + "    return (q >= k\n            | (q ^ k) > 10)\n"),
)  # fmt: skip
# Mods that the front end takes, or that it would repair by a declaration: id, mod, the part that is marked, message, hint. {T} is the name of the door's library.
ONLY_TRACED = (
    ("traced-condition", MASK + "    return q >= k and q-k <= 10\n", "q >= k and q-k <= 10", "and this is a bool that",
     "write `(q >= k) & (q-k <= 10)`; join"),
    ("traced-condition", MASK + "    return 0 <= q-k <= 10\n", "0 <= q-k <= 10", "and this is a bool that",
     "write `(0 <= q-k) & (q-k <= 10)`; join"),
    ("traced-condition", MASK + "    return ((q - k) & 1) != 0 or not (0 <= q & 7 < 4 and h > 1)\n",
     "((q - k) & 1) != 0 or not (0 <= q & 7 < 4 and h > 1)", "and this is a bool that",
     "write `(((q - k) & 1) != 0) | ~(((0 <= q & 7) & (q & 7 < 4)) & (h > 1))`; join"),
    ("traced-condition", SCORE + "    causal = False\n    if not causal and 0 < q < k: return score\n    return -score\n",
     "not causal and 0 < q < k", "and this is a bool that", "write `{T}.where((not causal) & ((0 < q) & (q < k)), a, b)`"),
    ("traced-condition", SCORE + "    return score + max(q, k)\n", "max(q, k)", "and this is a bool that",
     "did you mean `{T}.maximum`?"),
    ("expected-number", SCORE + "    return score + math.exp(k)\n", "math.exp(k)",
     "`math.exp` needs a number, not an int that the GPU computes", "did you mean `{T}.exp`?"),
    ("expected-number", SCORE + "    return float(score)\n", "float(score)",
     "`float` needs a number, not a float that the GPU computes", {"torch": "`score.float()`", "jnp": "`jnp.float32(score)`"}),
    ("bad-key", SCORE + "    return score + BY_HEAD[h]\n", "BY_HEAD[h]", "and this is an int that the GPU computes",
     {"torch": "`torch.tensor([...])[h]`", "jnp": "`jnp.array([...])[h]`"}),
    ("unknown-member", SCORE + "    return score + np.log(k)\n", "np.log", "`numpy` has no `log` that attnc knows",
     "did you mean `{T}.log`?"),
    ("unknown-member", SCORE + "    return score + np.take(NUMBERS, h)\n", "np.take",
     "`numpy` has no `take` that attnc knows", "did you mean `{T}.take`?"),
    ("expected-number", SCORE + "    far = k.item()\n    return score + far\n", "k.item()",
     "`.item()` needs a number, not an int that the GPU computes", "did you mean `k`?"),
    ("expected-number", SCORE + "    return score + math.sqrt((q - k).item())\n", "(q - k).item()",
     "`.item()` needs a number, not an int that the GPU computes", "did you mean `(q - k)`?"),
    ("expected-number", SCORE + "    return score + score.tolist()\n", "score.tolist()",
     "`.tolist()` needs a number, not a float that the GPU computes", "did you mean `score`?"),
    ("expected-number", MASK + "    return bool(q >= k)\n", "bool(q >= k)",
     "`bool` needs a number, not a bool that the GPU computes", "did you mean `q >= k`?"),
    ("expected-number", SCORE + "    return score + int(q - k)\n", "int(q - k)",
     "`int` needs a number, not an int that the GPU computes",
     {"torch": "`(q - k).long()`", "jnp": "`jnp.int32(q - k)`"}),
    ("expected-number", SCORE + "    return score + NUMBERS.take(h)\n", "NUMBERS.take(h)",
     "`NUMBERS.take(h)` needs a number", "for all scores at once: instead of Python and NumPy use `{T}.where`"),
    ("traced-list-index", MASK + "    return NUMBERS[q] < 1\n", "NUMBERS[q]",
     "an array of NumPy is known only to the compiler", {"torch": "`torch.tensor(NUMBERS)[q]`", "jnp": "`jnp.array(NUMBERS)[q]`"}),
    ("traced-list-index", SCORE + "    return score + np.ones((2, 16))[h][q]\n", "np.ones((2, 16))[h]",
     "an array of NumPy is known only to the compiler",
     {"torch": "`torch.tensor(np.ones((2, 16)))[h]`", "jnp": "`jnp.array(np.ones((2, 16)))[h]`"}),
    ("traced-condition", MASK + "    return q in (0, k)\n", "q in (0, k)", "and this is a bool that",
     "write `(q == 0) | (q == k)`; join"),
    ("traced-condition", SCORE + "    return score if q not in TABLE else -score\n", "q not in TABLE",
     "and this is a bool that", "write `{T}.where((q != 0.5) & (q != 1.0), score, -score)`"),
    ("traced-condition", MASK + "    return any([q == 0, k == 0])\n", "any([q == 0, k == 0])", "and this is a bool that",
     "join the conditions by `|`"),
)  # fmt: skip


@functools.cache
def doors():
    """Returns a pair for each door: the name of its library in mods, and what calls it with a score_mod or a mask_mod."""
    array = np.random.default_rng(0).standard_normal((1, 2, 16, 8)).astype(np.float32)
    found = {}
    if importlib.util.find_spec("torch"):
        import torch
        from attnc.torch import create_block_mask, flex_attention

        x = torch.from_numpy(array)
        found["torch"] = lambda score_mod, mask_mod: flex_attention(
            x, x, x, score_mod, mask_mod and create_block_mask(mask_mod, None, None, 16, 16, device="cpu")
        )
    if importlib.util.find_spec("jax"):
        from attnc import jax as door

        found["jnp"] = lambda score_mod, mask_mod: door.flex_attention(
            array, array, array, score_mod, mask_mod and door.create_block_mask(mask_mod, None, None, 16, 16)
        )
    return found or sys.exit(print("SKIPPED: neither torch nor jax is installed"))


class Diagnostics(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.count = pathlib.Path(folder.name), 0

    def refused(self, text, library):
        """Returns the file of a mod, and the error about it."""
        self.count += 1
        path = self.folder / f"mod{self.count}.py"
        path.write_text(HEAD + text, encoding="utf-8")
        scope = {}
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)
        with self.assertRaises(UntranslatableError) as caught:
            doors()[library](scope.get("score_mod"), scope.get("mask_mod"))
        return path, caught.exception

    def test_the_words_are_those_of_the_tables(self):
        rows = "".join((needs.ROOT / "dsl" / name).read_text() for name in ("diagnostics.def", "warnings.def"))
        texts = re.findall(r'^(?:DIAG|WARN)\(\w+, ("[^"]*"), ("(?:[^"\\]|\\.)*"), ("(?:[^"\\]|\\.)*")', rows, re.M)
        table = {ast.literal_eval(id): (ast.literal_eval(text), ast.literal_eval(hint)) for id, text, hint in texts}
        self.assertEqual(_diagnostics.WORDS, table)

    def test_mistakes_are_told_as_by_the_front_end(self):
        for library in doors():
            for id, text in ALIKE:
                with self.subTest(text, library=library):
                    path, error = self.refused(text, library)
                    told = subprocess.run(
                        [os.environ["ATTNC_COMMAND"], "check", str(path)], capture_output=True, text=True
                    ).stderr.replace("warning: ", "error: ").replace(f" [{id}]", "")
                    told = told.replace("torch.tensor", "jnp.array").replace("torch.", "jnp.") if library == "jnp" else told
                    self.assertEqual(error.id, id)
                    self.assertEqual(str(error), told.strip())

    def test_what_only_the_front_end_takes(self):
        for library in doors():
            for id, text, part, message, hint in ONLY_TRACED:
                with self.subTest(text, library=library):
                    path, error = self.refused(text, library)
                    hint = (hint[library] if isinstance(hint, dict) else hint).replace("{T}", library)
                    place, line, marks, note = str(error).split("\n")
                    number = next(at for at, x in enumerate(path.read_text().split("\n"), 1) if part in x)
                    self.assertEqual(error.id, id)
                    self.assertTrue(place.startswith(f"{path}:{number}:{line.index(part) + 1}: error: "), place)
                    self.assertIn(message, place)
                    self.assertEqual(line[marks.index("^") : len(marks)], part)
                    self.assertIn(hint, note)

    def test_results_that_are_arrays(self):
        text = "from {} import zeros\nROWS = zeros((2, 16))\n" + SCORE + "    return score + ROWS[h]\n"
        for library, module, what in (("torch", "torch", "a tensor"), ("jnp", "jax.numpy", "an array")):
            if library in doors():
                with self.subTest(library):
                    _, error = self.refused(text.format(module), library)
                    place, line, marks, note = str(error).split("\n")
                    self.assertEqual(error.id, "array-result")
                    self.assertRegex(place, rf":8:12: error: a mod computes one number .* {what} of shape \(16,\)$")
                    self.assertEqual(line[marks.index("^") : len(marks)], "score + ROWS[h]")
                    self.assertIn("index it", note)

    def test_operations_that_are_not_translated(self):
        if "torch" in doors():
            for expression, why in (
                ("torch.sort(torch.stack([score, score * 2]))[0][0]", "score_mod uses aten.sort.default, which"),
                ("score.double() * 2", "score_mod, aten.mul.Tensor: attnc does not compute in torch.float64"),
            ):
                with self.subTest(expression):
                    text = f"import torch\n{SCORE}    score = score * 2\n    return {expression}\n"
                    path, error = self.refused(text, "torch")
                    self.assertTrue(str(error).startswith(f"{path}:8: {why}"), error)

    def test_a_mask_that_is_a_tensor(self):  # no operation uses it
        if "torch" in doors():
            _, error = self.refused("import torch\nFLAGS = torch.ones(16)\n" + MASK + "    return FLAGS\n", "torch")
            self.assertEqual(error.id, "array-result")

    def loaded(self, text, library):
        """Returns a mod, which calls `where`, and what the command says of the same text."""
        self.count += 1
        path, scope = self.folder / f"mod{self.count}.py", {}
        path.write_text(f"import math\nfrom torch import where\nNEVER = -3.4028235e38\n{text}")
        told = subprocess.run([os.environ["ATTNC_COMMAND"], "check", str(path)], capture_output=True, text=True).stderr
        path.write_text(path.read_text().replace("torch", "jax.numpy" if library == "jnp" else "torch"))
        exec(compile(path.read_text(), str(path), "exec"), scope)
        return scope["score_mod"], told.strip()

    def warned(self, text, library):
        """Returns what two calls with a mod warn of, and what the command says of the same text."""
        self.count += 1
        path, module = self.folder / f"mod{self.count}.py", {"torch": "torch", "jnp": "jax.numpy"}[library]
        path.write_text(f"FLAGS: bool[KV_LEN]\n{text}")
        told = subprocess.run([os.environ["ATTNC_COMMAND"], "check", str(path)], capture_output=True, text=True).stderr
        path.write_text(f"from {module} import ones; FLAGS = ones(16) > 0\n{text}")
        scope = {}
        exec(compile(path.read_text(), str(path), "exec"), scope)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                doors()[library](scope.get("score_mod"), scope.get("mask_mod"))
        self.assertEqual({one.filename for one in caught} | {__file__}, {__file__})
        return [str(one.message) for one in caught], re.sub(r".* warning: nothing reads the capture `FLAGS`(.*\n){4}", "", told).strip()

    def test_suspicions_of_the_front_end(self):
        for library in doors():
            for id, text in (
                ("mask-always-true", MASK + "    return (q >= k) | (k > q)\n"),
                ("mask-always-false", MASK + "    later = k > q\n    return (q >= k) & later  # none\n"),
                ("comparison-precedence", MASK + "    return (FLAGS[q] & q >= k)\n"),
                ("comparison-precedence", MASK + "    return q >= k ^ FLAGS[q]\n"),
                ("parameter-order", "def mask_mod(q_idx, kv_idx, b, h):\n    return q_idx >= kv_idx\n"),
                ("parameter-order", "def score_mod(b, h, q_idx, kv_idx, score):\n    return score + b\n"),
            ):
                with self.subTest(text, library=library):
                    found, told = self.warned(text, library)
                    self.assertEqual(found, [told])
                    self.assertIn(f"[{id}]\n", told)

    def test_parameters_that_are_only_positional(self):  # which texts do not have
        for library in doors():
            with self.subTest(library):
                found, _ = self.warned("def mask_mod(q_idx, kv_idx, b, /, h):\n    return q_idx >= kv_idx\n", library)
                self.assertRegex("".join(found), r":2:14: .* given b as its parameter `q_idx`: .*\n.*\n {13}\^~{4}\n")

    def test_what_is_not_suspicious(self):
        for library in doors():
            for text in (
                MASK + "    return True\n",
                MASK + "    return (q & 3 >= k & 1) & FLAGS[k]\n",
                MASK + "    return (FLAGS[k] & q) == 0\n",
                "def mask_mod(b, h, i, j):\n    return i >= j\n",
            ):
                with self.subTest(text, library=library):
                    self.assertEqual(self.warned(text, library), ([], ""))

    def test_masks_of_installed_packages_are_not_the_callers(self):
        for library in doors():
            with self.subTest(library), unittest.mock.patch("sysconfig.get_path", lambda name: str(self.folder)):
                found, told = self.warned(MASK + "    return q >= 0\n", library)
                self.assertEqual(found, [])
                self.assertIn("[mask-always-true]", told)

    def test_finite_masks_are_warned_of_once(self):
        for library, call in doors().items():
            for expression in (
                "where(q >= k, score, -1e9)",
                "score - where(q >= k, 0.0, 30000)  # far",
                "-where(q > k, -score, 1.5e10)",
                "score + where(k > 3, where(q >= k, 0.0, -65504.0), -65504.0)",
            ):
                with self.subTest(expression, library=library):
                    mod, told = self.loaded(f"{SCORE}    score = score * 2\n    return {expression}\n", library)
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        for _ in range(2):
                            call(mod, None)
                    (warning,) = caught
                    self.assertEqual((warning.category, warning.message.id), (attnc.ModWarning, "finite-mask"))
                    self.assertEqual((str(warning.message), warning.filename), (told, __file__))

    def test_finite_masks_in_graphs(self):
        if "torch" not in doors():
            self.skipTest("torch is not installed")
        import torch

        mod, told = self.loaded(f"{SCORE}    return where(q >= k, score, -1e9)\n", "torch")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.compile(doors()["torch"], backend="aot_eager")(mod, None)
        self.assertEqual([str(one.message) for one in caught if one.category is attnc.ModWarning], [told])

    def test_numbers_that_are_elsewhere(self):
        for library, call in doors().items():
            with self.subTest(library), self.assertWarnsRegex(attnc.ModWarning, r"mod1\.py:4:1: warning: -3\.4028235e\+38 is"):
                call(self.loaded(f"{SCORE}    return where(q >= k, score, NEVER)\n", library)[0], None)
            self.count -= 1

    def test_what_masks_or_is_small_is_not_warned_of(self):
        for library, call in doors().items():
            for expression in (
                "where(q >= k, score, -math.inf)", "where(q >= k, score, -9999.0)", "where(q >= k, score, 1e9)",
                "where(q >= k, score, -1e9) * 2.0", "(score - 1e9) + 1e9",
            ):  # fmt: skip
                with self.subTest(expression, library=library), warnings.catch_warnings():
                    warnings.simplefilter("error")
                    mod, told = self.loaded(f"{SCORE}    return {expression}\n", library)
                    self.assertEqual(told, "")
                    call(mod, None)

    def test_mods_of_the_other_kind(self):
        for library, call in doors().items():
            with self.subTest(library):
                for told, given in (
                    (r"(?s)test.py:\d+:\d+: error: the score_mod .*causal.* must take score, b, .* \^~{24}\n.* give block_mask=",
                     (lambda b, h, q, k: q >= k, None)),
                    (r"^create_block_mask takes a mask_mod\(b, h, q_idx, kv_idx\), but causal has five parameters, as a",
                     (None, lambda score, b, h, q, k: score)),
                    ("(?s)error: the mask_mod causal must take b, .* give it as score_mod", (None, lambda b, h: b == h)),
                ):  # fmt: skip
                    (given[0] or given[1]).__qualname__ = "causal"
                    with self.assertRaisesRegex(TypeError, told):
                        call(*given)

    def test_what_is_no_mod(self):
        for library, call in doors().items():
            mask = types.SimpleNamespace(mask_mod=lambda b, h, q, k: q >= k)
            for told, given in (
                ("score_mod is a SimpleNamespace: give block_mask=...", (mask, None)),
                ("score_mod is a float: give a function of score, b, h, q_idx and kv_idx", (0.5, None)),
                ("mask_mod is a list: give a function of b, h, q_idx and kv_idx", (None, [1])),
            ):
                with self.subTest(told, library=library), self.assertRaises(TypeError) as caught:
                    call(*given)
                self.assertEqual(str(caught.exception), told)

    def test_sources_that_are_not_known(self):
        scope = {}
        exec(SCORE + "    return score if q > k else -score\n", scope)
        for library, call in doors().items():
            with self.subTest(library), self.assertRaisesRegex(UntranslatableError, "asks for the number in a t"):
                call(scope["score_mod"], None)


if __name__ == "__main__":
    doors()
    unittest.main()
