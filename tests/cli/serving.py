"""Runs `attnc serve` for tests, and Chromium."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

MOD = """slopes: f32[H]
def score_mod(score, b, h, q_idx, kv_idx):
    return score + slopes[h] * (kv_idx - q_idx)
def mask_mod(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx
"""
OPTIONS = ["--no-cache", "--arch", "sm_90a", "--head-dim", "64", "--shape", "1,2,2,512,512"]


class Skipped(unittest.SkipTest):
    """Why a test cannot run here. ctest looks for the word."""

    def __init__(self, why):
        super().__init__(why)
        print(f"SKIPPED: {why}", flush=True)


class Server:
    """`attnc serve` of one file in a folder of its own."""

    def __init__(self, attnc, text=MOD, name="mod.py"):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, name)
        self.write(text)
        self.process = subprocess.Popen([attnc, "serve", self.path, *OPTIONS], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()
        if not self.address:
            error = self.process.communicate()[1]
            self.folder.cleanup()
            if "cpp-httplib" in error:
                raise Skipped(error)
            raise RuntimeError(error)
        self.host, self.token = self.address.removeprefix("http://").rstrip("/").split("/")
        self.port = int(self.host.split(":")[1])

    def write(self, text):
        with open(self.path + ".new", "w") as file:
            file.write(text)
        os.replace(self.path + ".new", self.path)

    def ask(self, path, method="GET", **headers):
        """Returns (status, headers, body). `path` goes out as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        reply = connection.getresponse()
        body = reply.read().decode()
        connection.close()
        return reply.status, reply.headers, body

    def state(self, holds, seconds=60):
        """Waits for a state of which `holds` is true. Raises Skipped without NVRTC."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            state = json.loads(self.ask(f"/{self.token}/state")[2])
            if holds(state):
                return state
            if "nvrtc" in json.dumps(state.get("error", "")):
                raise Skipped(state["error"]["error"]["message"])
            time.sleep(0.05)
        raise AssertionError(f"no such state within {seconds} s: {json.dumps(state)[:2000]}")

    def stop(self):
        """Presses Ctrl-C. Returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=30)
        self.process.stdout.close()
        self.process.stderr.close()
        self.folder.cleanup()
        return code


def chromium():
    """Returns the path of a browser. Raises Skipped without one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    raise Skipped("Chromium is not installed")


def dom_of(address):
    """Returns the document that a page becomes, as HTML."""
    with tempfile.TemporaryDirectory() as profile:
        told = subprocess.run(
            [chromium(), "--no-sandbox", "--headless=new", "--disable-gpu", f"--user-data-dir={profile}",
             "--virtual-time-budget=3000", "--dump-dom", address],
            capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    return told.stdout
