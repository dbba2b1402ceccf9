#!/usr/bin/env python3
"""What the package offers without torch and a GPU: its version, the command, and pictures of masks.

  ATTNC_COMMAND=attnc ATTNC_LIBRARY=libattnc.so python3 package_test.py
"""

import os
import re
import subprocess
import sys
import unittest
from ctypes import byref, pointer
from unittest import mock

import needs
import attnc
from attnc import _spec as spec
from attnc._library import KINDS
from attnc.launch import lists_in_workspace, settled
from attnc.mod import _dense

WINDOW = "window: int\ndef mask_mod(b, h, q_idx, kv_idx): return (q_idx >= kv_idx) & (q_idx - kv_idx <= window)"


def python(*arguments, **environment):
    environment = {**os.environ, "PYTHONPATH": str(needs.ROOT / "tools/python"), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)


class Package(unittest.TestCase):
    def test_version(self):
        self.assertRegex(attnc.__version__, r"^\d+\.\d+\.\d+$")
        self.assertEqual(attnc.__version__, attnc.version())
        with self.assertRaises(AttributeError):
            attnc.no_such_name

    def test_python_runs_the_command(self):
        done = python("-m", "attnc", "--version")
        self.assertEqual((done.returncode, done.stdout.split("\n")[0]), (0, f"attnc {attnc.__version__}"))
        done = python("-m", "attnc", "check", "no_such_file.py")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no_such_file.py", done.stderr)
        done = python("-m", "attnc", ATTNC_COMMAND="/nowhere/attnc")
        self.assertEqual(done.returncode, 1)
        self.assertIn("attnc: error: the command attnc is not at /nowhere/attnc", done.stderr)

    def test_pictures_of_masks(self):
        mod = attnc.Mod.parse(WINDOW)
        svg = mod.mask_svg(512, captures={"window": 100}, block=(128, 64), rows=(0, 256))
        self.assertTrue(svg.startswith("<svg ") and svg.endswith("</svg>\n"))
        title = re.search("<title>(.*)</title>", svg)[1]
        self.assertIn("window = 100; Q_LEN 512 x KV_LEN 512, 4 x 8 blocks of 128 x 64", title)
        self.assertNotEqual(svg, mod.mask_svg(512, captures={"window": 50}, block=(128, 64), rows=(0, 256)))
        with self.assertRaisesRegex(attnc.ArgumentError, "captures has `windw`.*did you mean `window`"):
            mod.mask_svg(captures={"windw": 100})
        with self.assertRaisesRegex(attnc.ArgumentError, "captures `window`, which is not given"):
            mod.mask_svg(captures={})
        with self.assertRaisesRegex(attnc.RunError, "--head"):
            mod.mask_svg(512, captures={"window": 100}, head=99)

    def test_quantise(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        x = torch.sin(torch.arange(2 * 3 * 300 * 64).reshape(2, 300, 3, 64) * 0.7).transpose(1, 2)
        values, scales = attnc.quantise(x)
        torch.testing.assert_close(scales, x.abs().amax((2, 3)) / 448)
        expected = (x * (1 / scales)[..., None, None]).to(torch.float8_e4m3fn)
        self.assertTrue(torch.equal(values.float(), expected.float()))
        values, scales = attnc.quantise(x.bfloat16(), by_block=True, rotate=3)
        self.assertEqual((values.dtype, scales.shape), (torch.float8_e4m3fn, (2, 3, 3)))
        rotated = values.float() * scales.repeat_interleave(128, -1)[..., :300, None]
        torch.testing.assert_close(rotated.norm(dim=-1), x.norm(dim=-1), rtol=0.05, atol=0)
        self.assertFalse(torch.allclose(rotated, x, rtol=0.1, atol=0.1))
        self.check_rotary(torch, x)
        given = torch.tensor([0.5, 2.0, 0.25]).expand(2, 3)
        x[0, 0, 0, 0] = 1e6
        values, scales = attnc.quantise(x, scales=given)
        self.assertIs(scales, given)
        expected = (x / given[..., None, None]).clamp(-448, 448).to(torch.float8_e4m3fn)
        self.assertTrue(torch.equal(values.float(), expected.float()))
        for more, text in ((dict(by_row=True), "scales are given, and by_block or by_row"),
                           (dict(scale_bits=4), "scale_bits is 4, and scales are given")):
            with self.assertRaisesRegex(attnc.Error, text):
                attnc.quantise(x, scales=given, **more)
        with self.assertRaisesRegex(attnc.Error, r"scales are given, and not f32 \[2, 3\]"):
            attnc.quantise(x, scales=given[0])
        for bits in (-1, 30):
            with self.assertRaisesRegex(attnc.Error, f"scale_bits is {bits}: give 1 to 24, or 0 for all bits"):
                attnc.quantise(x, scale_bits=bits)
        with self.assertRaisesRegex(attnc.RunError, "^scales: a tensor has DLPack's dtype code 2, .* and e4m3$"):
            attnc.quantise(x, scales=given.double())
        for wrong, text in ((x[0], r"give \[B, H, L, D\]"), (x.int(), "i32"), (x.mT, "last stride")):
            with self.assertRaisesRegex(attnc.Error, text):
                attnc.quantise(wrong)

    def check_rotary(self, torch, x):
        angles = torch.outer(torch.arange(400.0), 100 ** -torch.linspace(0, 1, 16))
        table, positions = torch.cat([angles.cos(), angles.sin()], -1), torch.arange(99, 399)
        for given, rows in ((None, slice(0, 300)), (positions.expand(2, 300), slice(99, 399))):
            for interleaved in (False, True):
                cos, sin = table[rows].chunk(2, -1)
                pairs = (x[..., :32:2], x[..., 1:32:2]) if interleaved else (x[..., :16], x[..., 16:32])
                turned = (pairs[0] * cos - pairs[1] * sin, pairs[1] * cos + pairs[0] * sin)
                turned = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
                expected = torch.cat([turned, x[..., 32:]], -1)
                values, scales = attnc.quantise(
                    x, by_row=True, cos_sin=table, positions=given, interleaved=interleaved
                )  # fmt: skip
                torch.testing.assert_close(scales, expected.abs().amax(-1) / 448)
                torch.testing.assert_close(values.float() * scales[..., None], expected, rtol=0.07, atol=1e-3)
        with self.assertRaisesRegex(attnc.Error, "positions or interleaved pairs are given without cos_sin"):
            attnc.quantise(x, positions=positions.expand(2, 300))
        with self.assertRaisesRegex(attnc.Error, r"positions are not i32 or i64 \[2, 300\]"):
            attnc.quantise(x, cos_sin=table, positions=positions)

    def test_lists_in_workspace(self):
        """A call asks this of what it prepared, which needs a GPU; of choices it can be asked without one."""
        mod = attnc.Mod.parse("doc: i32[KV_LEN]\ndef mask_mod(b, h, q_idx, kv_idx): return doc[q_idx] == doc[kv_idx]")
        rows, offsets, of_rows = (pointer(_dense(*x)) for x in (("bf16", (2, 4, 1024, 64)), ("i32", (2,)), ("i32", (1024,))))
        rows.contents.data = of_rows.contents.data = offsets.contents.data = 1 << 20  # never read
        captures = (spec.Capture * 1)(spec.Capture(name=b"doc", kind=KINDS.index("tensor"), tensor=of_rows))
        for more, told in (({}, (True, False)), ({"q_offsets": offsets}, (True, True))):
            operands = spec.Operands(q=rows, k=rows, v=rows, captures=captures, capture_count=1, **more)
            structs = byref(operands), byref(spec.Outputs(out=rows))
            choices = settled(mod._handle.address, structs, arch=b"sm_90a")
            self.assertEqual(lists_in_workspace(choices.address), told, more)
        mod = attnc.Mod.parse("score * 2")
        operands = spec.Operands(q=rows, k=rows, v=rows)
        choices = settled(mod._handle.address, (byref(operands), byref(spec.Outputs(out=rows))), arch=b"sm_90a")
        self.assertEqual(lists_in_workspace(choices.address), (False, False))

    def test_notebooks_show_pictures(self):
        mod = attnc.Mod.parse(WINDOW)
        self.assertIn("<svg ", mod._repr_svg_())
        self.assertRegex(mod._repr_html_(), r"(?s)^<figure><svg .*</svg>\n<figcaption><code>&lt;attnc.Mod .*</figure>$")
        self.assertIsNone(attnc.Mod.parse("score * 2")._repr_html_())
        with mock.patch.dict(os.environ, ATTNC_COMMAND="/nowhere/attnc"):  # then a notebook shows the text
            self.assertIsNone(mod._repr_svg_())


if __name__ == "__main__":
    unittest.main()
