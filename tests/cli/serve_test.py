"""Tests `attnc serve` over HTTP: who is answered, and how the page follows the file.

  python3 serve_test.py ATTNC
"""

import sys
import unittest

sys.dont_write_bytecode = True

import serving  # noqa: E402

ATTNC = sys.argv.pop(1)


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = serving.Server(ATTNC)
        cls.root = f"/{cls.server.token}"
        try:
            cls.good = cls.server.state(lambda state: "kernel" in state)
        except BaseException:
            cls.server.stop()
            raise

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def status(self, path, method="GET", **headers):
        return self.server.ask(path, method, **headers)[0]

    def test_page(self):
        status, headers, body = self.server.ask(self.root + "/")
        self.assertEqual(status, 200)
        self.assertIn("def score_mod", body)
        self.assertIn("script-src 'sha256-", headers["Content-Security-Policy"])
        self.assertIn("frame-ancestors 'none'", headers["Content-Security-Policy"])
        self.assertEqual((headers["Cache-Control"], headers["X-Content-Type-Options"]), ("no-store", "nosniff"))
        self.assertEqual(self.good["kernel"]["maps"][0]["cells"], ["peee", "fpee", "ffpe", "fffp"])
        now = self.server.state(lambda state: True)["revision"]
        self.assertEqual(self.status(f"{self.root}/state?have={now}"), 204)
        self.assertEqual(self.status(f"{self.root}/state?have={now - 1}"), 200)

    def test_strangers(self):
        server, root = self.server, self.root + "/"
        self.assertEqual(self.status("/"), 404)
        self.assertEqual(self.status(f"/{'0' * 32}/"), 404)
        self.assertEqual(self.status(f"/{server.token[:-1]}/"), 404)
        self.assertEqual(self.status(root, Host="attacker.example"), 403)
        self.assertEqual(self.status(root, Host=f"attacker.example:{server.port}"), 403)
        self.assertEqual(self.status(root, Origin="http://attacker.example"), 403)
        self.assertEqual(self.status(root, Origin="null"), 403)
        self.assertEqual(self.status(root, Origin=f"http://{server.host}"), 200)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            self.assertEqual(self.status(root, method), 405, method)

    def test_other_files(self):
        for path in ("/../mod.py", "/mod.py", "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2fmod.py", "//",
                     "/state/../mod.py", "/state%00", "/./"):
            status, _, body = self.server.ask(self.root + path)
            self.assertIn(status, (400, 404), path)
            self.assertNotIn("score_mod", body)

    def test_only_this_machine(self):
        places = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table) as file:
                for line in file.read().splitlines()[1:]:
                    host, port = line.split()[1].split(":")
                    if int(port, 16) == self.server.port and line.split()[3] == "0A":
                        places.add(host)
        self.assertEqual(places, {"0100007F"})

    def test_changes(self):
        server = self.server
        server.write(serving.MOD.replace(">=", "<="))
        state = server.state(lambda state: "<= kv_idx" in state["text"] and "error" not in state)
        self.assertEqual(state["kernel"]["maps"][0]["cells"], ["pfff", "epff", "eepf", "eeep"])
        # What is wrong is told, with what was right last.
        server.write(serving.MOD.replace("slopes[h]", "slope[h]"))
        state = server.state(lambda state: "error" in state)
        found = state["error"]["error"]["diagnostics"][0]
        self.assertEqual((found["line"], "slope[h]" in state["text"]), (3, True))
        self.assertIn("slopes", found["hint"])
        self.assertEqual(state["kernel"]["maps"][0]["cells"], ["pfff", "epff", "eepf", "eeep"])
        # More work than --max-work allows is an error, not a wait.
        terms = "".join(f"    score = score + torch.tanh(score * {i}.5)\n" for i in range(3000))
        server.write("import torch\ndef score_mod(score, b, h, q_idx, kv_idx):\n" + terms + "    return score\n")
        state = server.state(lambda state: "tanh" in state["text"] and "error" in state)
        self.assertIn("too long to compile", state["error"]["error"]["message"])
        server.write(serving.MOD)
        server.state(lambda state: "slopes[h]" in state["text"] and "error" not in state)


if __name__ == "__main__":
    unittest.main()
