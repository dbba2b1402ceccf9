#!/usr/bin/env python3
"""Checks what the first call of a kind compiles before the forward pass, and what meanwhile.

  ATTNC_LIBRARY=libattnc.so python3 first_call_test.py [-v ...]

Prints SKIPPED if torch or NVRTC is not installed.
"""

import os
import pathlib
import tempfile
import threading
import unittest
import warnings
from unittest import mock

import needs

needs.modules("torch")
LOG = tempfile.NamedTemporaryFile()
os.environ |= {"ATTNC_LOG": LOG.name, "ATTNC_CACHE_MODE": "off"}  # read when the compiler is made
import torch
import attnc
from attnc.launch import Launch
from attnc.torch import kernels


class Forward(Exception):
    """In place of the forward pass's kernels."""


class FirstCall(unittest.TestCase):
    def prepare(self, gradients):
        """Returns (members of the options, lines of the log) of a call on a Hopper GPU."""
        pathlib.Path(LOG.name).write_text("")
        q, k, v = torch.zeros(3, 1, 2, 64, 64, dtype=torch.bfloat16)
        launch = Launch({}, 1.0, mod=attnc.Mod.parse("q_idx >= kv_idx").ir, out=q, gradients=gradients)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", attnc.CpuWarning)
            call = kernels.Call(launch, q, k, v, {})
        with mock.patch.object(kernels, "prepared", side_effect=Forward) as prepared, self.assertRaises(Forward):
            call._prepare(torch.device("cuda", 0), {"arch": b"sm_90a"})
        for thread in set(threading.enumerate()) - {threading.current_thread()}:
            thread.join()
        return prepared.call_args.kwargs, pathlib.Path(LOG.name).read_text()

    def test_kernels_of_the_backward_pass_compile_beside_the_forward_pass(self):
        members, log = self.prepare(gradients=())
        if "NVRTC" in log:
            self.skipTest("SKIPPED: NVRTC was not found")
        self.assertTrue(members["backward_later"])
        self.assertIn("compiled backward_sm90.cu", log)
        self.assertNotIn("compiled forward", log)

    def test_without_gradients_nothing_is_later(self):
        members, log = self.prepare(gradients=None)
        self.assertFalse(members["backward_later"])
        self.assertEqual(log, "")


if __name__ == "__main__":
    unittest.main()
