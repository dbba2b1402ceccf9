"""Tests the pages of `attnc explain --html` and `attnc serve` in headless Chromium.

  python3 page_test.py ATTNC
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import serving  # noqa: E402

ATTNC = sys.argv.pop(1)
HACK = "document.title = 'hacked'"
HOSTILE = f"</script><script>{HACK}</script><img src=x onerror=\"{HACK}\"><!--\u2028"


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        serving.chromium()

    def check(self, dom, name):
        self.assertIn(f"<title>{name} · attnc</title>", dom)
        self.assertNotIn("<img", dom.split("<script")[0])
        self.assertRegex(dom, '<div id="banner"[^>]*hidden')  # neither an error of the mod nor of the page
        for heading in ("The mod", "The CUDA that it becomes", "The mask", "Work by multiprocessor", "Why"):
            self.assertIn(f"<h2>{heading}</h2>", dom)
        self.assertEqual(len(re.findall("<canvas", dom)), 3)
        self.assertIn("slopes[h] * (kv_idx - q_idx)", dom)
        self.assertIn("row_shift", dom)

    def test_explain(self):
        with tempfile.TemporaryDirectory() as folder:
            mod, page = os.path.join(folder, "mod.py"), os.path.join(folder, "page.html")
            with open(mod, "w") as file:
                file.write(f'"""{HOSTILE}"""\n{serving.MOD}')
            told = subprocess.run([ATTNC, "explain", mod, *serving.OPTIONS, "--html", page], capture_output=True, text=True)
            if told.returncode == 3 and "nvrtc" in told.stderr:
                raise serving.Skipped(told.stderr)
            self.assertEqual(told.returncode, 0, told.stderr)
            dom = serving.dom_of("file://" + page)
        self.check(dom, "mod.py")
        self.assertIn("&lt;/script&gt;&lt;script&gt;document.title", dom)

    def test_serve(self):
        server = serving.Server(ATTNC, f"# {HOSTILE.strip()}\n{serving.MOD}")
        try:
            server.state(lambda state: "kernel" in state)
            self.check(serving.dom_of(server.address), "mod.py")
            server.write(serving.MOD.replace("slopes[h]", f"slope[h]  # {HOSTILE.strip()}"))
            server.state(lambda state: "error" in state)
            dom = serving.dom_of(server.address)
            self.assertIn("<title>mod.py · attnc</title>", dom)
            self.assertRegex(dom, '<div id="banner" class="">line 3: `slope` is not defined')
            self.assertIn('<body class="stale">', dom)
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
