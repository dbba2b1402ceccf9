"""Tests that a mod tells what it is, and explains its kernel in the same words as the command. Needs NVRTC, but no torch and no GPU."""

import json
import os
import subprocess
import unittest

import needs  # finds attnc
import attnc

TEXT = """
window: int
cap: float
def score_mod(score, b, h, q_idx, kv_idx):
    return score * cap
def mask_mod(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < window)
"""
SHAPE = (1, 4, 2, 1024, 1024)


class Explain(unittest.TestCase):
    def explained(self, mod=None, **options):
        captures = {"window": 256, "cap": 0.5} if mod is None else {}
        try:
            return (mod or attnc.Mod.parse(TEXT)).explain(SHAPE, captures=captures, arch="sm_90a", **options)
        except attnc.RunError as error:
            if "nvrtc" in str(error):
                self.skipTest(f"SKIPPED: {error}")
            raise

    def test_as_the_command(self):
        for kind, options in (("forward", {}), ("backward", {"training": True, "gradients": ("cap",)})):
            command = [os.environ["ATTNC_COMMAND"], "explain", "--json", "--expr", TEXT, "--arch", "sm_90a", "--head-dim"]
            command += ["64", "--kernel", kind, "--shape", ",".join(map(str, SHAPE))]
            command += ["--set", "window=256", "--set", "cap=0.5"]
            mine = self.explained(head_dim=64, **options)
            told = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(told.returncode, 0, told.stderr)
            theirs = json.loads(told.stdout)
            for name in set(mine) - {"mod", "choice", "workspaceBytes"}:
                self.assertEqual(mine[name], theirs[name], name)
            self.assertEqual(mine["kernel"]["kind"], kind)
            self.assertEqual([one["capture"] for one in mine["gradients"]], ["cap"] if options else [])

    def test_text_is_what_the_command_prints(self):
        command = [os.environ["ATTNC_COMMAND"], "explain", "--expr", TEXT, "--dtype", "fp16", "--head-dim", "64"]
        command += ["--arch", "sm_90a", "--set", "window=256", "--set", "cap=0.5", "--kernel", "backward"]
        told = subprocess.run([*command, "--gradients", "cap", "--shape", "1024,1024"], capture_output=True, text=True)
        if "nvrtc" in told.stderr:
            self.skipTest(f"SKIPPED: {told.stderr}")
        options = {"dtype": "f16", "head_dim": 64, "arch": "sm_90a", "training": True, "gradients": ["cap"]}
        text = attnc.explain(TEXT, (1024, 1024), captures={"window": 256, "cap": 0.5}, **options)
        without_names = [
            [line for line in found.splitlines() if not line.startswith(("mod ", " "))] for found in (text, told.stdout)
        ]
        self.assertEqual(*without_names)
        self.assertIn("kernel ", repr(text))  # as prompts and notebooks show it
        self.assertIn("\n", repr(text))

    def test_text_refuses_what_is_no_mod(self):
        with self.assertRaisesRegex(attnc.ArgumentError, r"mod is function: .*attnc.torch.translate\(.*\).mod"):
            attnc.explain(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)
        with self.assertRaisesRegex(attnc.ArgumentError, "dtype is 'half': one of"):
            attnc.explain(TEXT, dtype="half")
        with self.assertRaisesRegex(attnc.ArgumentError, "and no shape: give"):
            attnc.explain("t: f32[4]\ndef score_mod(s, b, h, q, k): return s + t[h]", captures={"t": None})

    def test_mods_print_what_they_are(self):
        bias = "bias: f32[H, KV_LEN]\nwindow: int\ndef score_mod(s, b, h, q_idx, k):\n    return s + bias[h, k] * window"
        for text, told in (
            (TEXT, "<attnc.Mod <mod>: score_mod, mask_mod, cap: float, window: int>"),
            (bias, "<attnc.Mod <mod>: score_mod, bias: f32[H, KV_LEN], window: int>"),
        ):
            self.assertEqual(repr(attnc.Mod.parse(text)), told)

    def test_counts(self):
        blocks = self.explained()["blocks"]
        self.assertEqual((blocks["all"], blocks["partial"] + blocks["full"], blocks["full"]), (64, 8 + 7 + 6, 7))

    def test_sums_whose_gradients_are_given(self):
        text = (
            "def weight(prob, score, b, h, q_idx, kv_idx):\n    return prob\n"
            "def logit(prob, score, b, h, q_idx, kv_idx):\n    return score\n"
            "sums: f32[B, H, KV_LEN] = reduce_sum(weight)\nsize: f32[B, H] = reduce_sum(logit)\n"
        )
        mod, options = attnc.Mod.parse(text), {"training": True}
        without, given = (self.explained(mod, gradients=names, **options) for names in ((), ("size",)))
        self.assertEqual([output.is_sum for output in mod.outputs], [True, True])
        self.assertEqual((without["kernel"]["family"], given["kernel"]["family"]), ("sm90", "naive"))
        self.assertEqual(given["kernel"]["outputGradients"], ["size_gradient", "sums_gradient"])
        self.assertNotIn("outputGradients", without["kernel"])

    def test_what_does_not_fit(self):
        mod = attnc.Mod.parse(TEXT)
        with self.assertRaisesRegex(attnc.ArgumentError, "window"):
            mod.explain(SHAPE, captures={"cap": 1.0}, arch="sm_90a")
        with self.assertRaisesRegex(attnc.ArgumentError, "captures are cap, window"):
            mod.explain(SHAPE, captures={"window": 4, "cap": 1.0}, arch="sm_90a", training=True, gradients=["slopes"])
        with self.assertRaisesRegex(attnc.ArgumentError, "half"):
            mod.explain(SHAPE, captures={"window": 4, "cap": 1.0}, dtype="half")


if __name__ == "__main__":
    unittest.main()
