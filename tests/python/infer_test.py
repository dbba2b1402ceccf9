#!/usr/bin/env python3
"""Masks of the kinds that models make become mods that are equal to them, by CPython. Needs numpy, no GPU.

  ATTNC_LIBRARY=libattnc.so python3 infer_test.py [--all] [--table] [-v ...]

`--all` takes each mask of masks.py, otherwise each third. `--table` prints how many masks came back as what, and in what
time. With torch and transformers, the masks of transformers are among them.
"""

import re
import statistics
import sys
import unittest

import needs  # finds attnc
import attnc

needs.modules("numpy")
import numpy as np  # noqa: E402
from masks import MASKS  # noqa: E402


IS_WHOLE = "--all" in sys.argv


class Tensor(np.ndarray):
    """An array with the method of torch that inferred texts call."""

    def clamp(self, low, high):
        return np.clip(self, low, high)


def by_cpython(found, shape):
    """Returns the mask that CPython computes from an inferred text."""
    text = re.sub(r"^(from attnc .*|\w+: \w+\[.*\])$", "", found.text, flags=re.M)
    values = dict(zip(("B", "H", "Q_LEN", "KV_LEN"), shape))
    values |= {name: np.asarray(value).view(Tensor) for name, value in found.captures.items()}
    exec(text, values)
    indices = [np.arange(n).reshape([-1 if i == axis else 1 for i in range(4)]) for axis, n in enumerate(shape)]
    return np.broadcast_to(values["mask_mod"](*[index.view(Tensor) for index in indices]), shape)


def masks_of_transformers():
    """Yields names and masks that transformers makes, bool or float."""
    try:
        import torch
        from transformers import LlamaConfig, masking_utils
    except ImportError:
        return
    padding = torch.ones(3, 48, dtype=torch.long)
    padding[1, :11] = padding[2, 40:] = 0
    config = LlamaConfig(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, sliding_window=16)
    config.attention_chunk_size = 16
    for attention in ("sdpa", "eager"):
        config._attn_implementation = attention
        for name in ("create_causal_mask", "create_sliding_window_causal_mask", "create_chunked_causal_mask"):
            given = {"config": config, "attention_mask": padding, "past_key_values": None}
            embeds = {"inputs_embeds": torch.zeros(3, 48, 32), "input_embeds": torch.zeros(3, 48, 32)}
            function = getattr(masking_utils, name)
            known = function.__code__.co_varnames[: function.__code__.co_argcount]
            given |= {name: value for name, value in embeds.items() if name in known}
            if "cache_position" in known:
                given["cache_position"] = torch.arange(48)
            if "position_ids" in known:
                given["position_ids"] = torch.arange(48)[None]
            yield f"transformers {name}, {attention}", function(**{k: v for k, v in given.items() if k in known})


class InferTest(unittest.TestCase):
    def test_masks_come_back_equal_and_as_what_they_are(self):
        for name, (mask, form) in list(MASKS.items())[:: 1 if IS_WHOLE else 3]:
            with self.subTest(name):
                found = attnc.infer(mask)
                self.assertTrue((by_cpython(found, mask.shape) == mask).all(), found.text)
                allowed = ("formula", "intervals") if form == "formula" else (form,)
                self.assertIn(found.form, allowed, found.text)

    def test_texts_are_those_that_one_would_write(self):
        wanted = {
            "causal": "q_idx >= kv_idx",
            "causal, last query at last key": "q_idx + KV_LEN - Q_LEN >= kv_idx",
            "window 128 (mistral)": "(q_idx >= kv_idx) & (q_idx - kv_idx < 128)",
            "padding": "kv_idx < lengths[b]",
            "causal + left padding": "(q_idx >= kv_idx) & (kv_idx >= starts[b])",
            "chunks (llama 4)": "(q_idx >= kv_idx) & (q_idx // 128 == kv_idx // 128)",
            "documents, causal": "(q_idx >= kv_idx) & (document[q_idx] == document[kv_idx])",
            "axial": "((q_idx - kv_idx) % 32 == 0) | (q_idx // 32 == kv_idx // 32)",
            "windows by head": "(q_idx >= kv_idx) & (q_idx - kv_idx < window[h])",
            "block-sparse random, causal": "(q_idx >= kv_idx) & blocks[q_idx // 64, kv_idx // 64]",
            "flashmask, causal, start": "(q_idx >= kv_idx) & (q_idx < end_query[kv_idx])",
        }
        for name, expression in wanted.items():
            with self.subTest(name):
                self.assertEqual(attnc.infer(MASKS[name][0]).expression, expression)

    def test_noise_is_said_to_be_noise(self):
        found = attnc.infer(MASKS["causal with noise"][0])
        self.assertEqual(found.noise["expression"], "q_idx >= kv_idx")
        self.assertEqual(found.noise["elements"], int((MASKS["causal with noise"][0] != MASKS["causal"][0]).sum()))
        self.assertIsNone(attnc.infer(MASKS["noise"][0]).noise)
        self.assertIsNone(attnc.infer(MASKS["sinks"][0]).noise)

    def test_tensors_that_are_no_masks_are_refused(self):
        for mask, message in (
            (np.ones(4, bool), "the mask is bool"),
            (np.ones((0, 4), bool), "without elements"),
            (np.full((4, 4), 0.5, np.float32), "the tensor is no mask: element \\[0, 0, 0, 0\\] is 0.5"),
        ):
            with self.assertRaisesRegex(attnc.RunError, message):
                attnc.infer(mask)

    def test_masks_of_transformers(self):
        for name, mask in masks_of_transformers():
            with self.subTest(name):
                found = attnc.infer(mask)
                self.assertEqual(found.form, "formula", found.text)
                live = mask if mask.dtype.is_floating_point is False else mask == 0
                expected = live.expand(found.shape).numpy()
                captures = {name: value.numpy() for name, value in found.captures.items()}
                object.__setattr__(found, "captures", captures)
                self.assertTrue((by_cpython(found, found.shape) == expected).all(), found.text)


def table():
    """Prints how many masks came back as what, and in what time."""
    everything = [(name, mask) for name, (mask, _) in MASKS.items()] + list(masks_of_transformers())
    found = [(name, attnc.infer(mask)) for name, mask in everything]
    print(f"| {len(found)} masks came back as | masks | median time | longest |\n|---|---|---|---|")
    for form in ("formula", "intervals", "table"):
        seconds = [one.seconds for _, one in found if one.form == form]
        print(f"| {form} | {len(seconds)} | {statistics.median(seconds) * 1e3:.0f} ms | {max(seconds) * 1e3:.0f} ms |")


if __name__ == "__main__":
    if "--table" in sys.argv:
        table()
    else:
        unittest.main(argv=[argument for argument in sys.argv if argument != "--all"])
