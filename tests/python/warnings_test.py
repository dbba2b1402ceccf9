"""Tests that legal but suspicious mods issue Python warnings. Needs no torch."""

import unittest
import warnings

import needs  # finds attnc
import attnc

TEXT = "slopes: f32[H]\ndef mask_mod(b, h, q_idx, kv_idx):\n    return q_idx < 4 & kv_idx < 4\n"


class Warnings(unittest.TestCase):
    def test_a_parsed_text_warns(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            mod = attnc.Mod.parse(TEXT, name="window.py")
        self.assertEqual([one.category for one in caught], [attnc.ModWarning] * 2)
        self.assertEqual([one.message.id for one in caught], ["unused-capture", "comparison-precedence"])
        self.assertIn("window.py:3:12: warning: ", str(caught[1].message))
        self.assertEqual({one.filename for one in caught}, {__file__})
        self.assertEqual([one.id for one in mod.warnings], ["unused-capture", "comparison-precedence"])

    def test_the_caller_of_attention_is_named(self):
        with warnings.catch_warnings(record=True) as caught, self.assertRaises(attnc.ArgumentError):
            warnings.simplefilter("always")
            attnc.attention(TEXT, 1, 2, 3)
        self.assertEqual({one.filename for one in caught}, {__file__})

    def test_filters_of_python_decide(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message=r".*\[unused-capture\]", category=attnc.ModWarning)
            with self.assertRaises(attnc.ModWarning) as raised:
                attnc.Mod.parse(TEXT)
        self.assertEqual(raised.exception.id, "comparison-precedence")

    def test_honest_texts_and_ir_do_not_warn(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mod = attnc.Mod.parse("(q_idx >= kv_idx) & (kv_idx > 3)")
            self.assertEqual(mod.warnings, ())
            self.assertEqual(attnc.Mod.parse_ir(mod.ir).warnings, ())


if __name__ == "__main__":
    unittest.main()
