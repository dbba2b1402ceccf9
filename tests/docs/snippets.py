#!/usr/bin/env python3
"""Runs the code blocks of a document, in the order of the page, in a folder of its own.

  snippets.py DOCUMENT --attnc FILE --scratch DIR [--library FILE] [--python FILE] [--jax FILE] [--cuda DIR] [--gpu]

docs/site/README.md has the conventions. --library is libattnc.so, for the Python package. --python is a Python with
torch, --jax one with jax, and --cuda the headers of a CUDA toolkit, for blocks that need them. With --gpu, blocks that
need a GPU run as well; without it, each `attnc` line of theirs is started without one, and must not be wrong usage.
Prints each block that fails, with what it printed. Blocks that are left out are printed as well; if no block could run,
the last line is SKIPPED.
"""

import argparse
import ast
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import blocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT = 300  # seconds of a command, also on a busy GPU
WRONG_USAGE = 2
COMPILERS = {"cpp": "c++ -std=c++20", "c": "cc -std=c11 -Wall -Werror"}  # blocks without a title are compiled by the build
# Folders of the tree that commands of pages may name.
SHOWN = ("dsl", "templates", "bench", "tools", "include")


class Failure(Exception):
    pass


def commands_of(text):
    """(command, expected lines) of a console block. A command goes on behind a backslash, and on lines that begin
    with `> `."""
    out = []
    goes_on = False
    for line in text.splitlines():
        if line.startswith("$ "):
            out.append([line[2:], []])
            goes_on = line.endswith("\\")
        elif out and (goes_on or line.startswith("> ")):
            out[-1][0] += "\n" + (line[2:] if line.startswith("> ") else line)
            goes_on = line.endswith("\\")
        elif out:
            out[-1][1].append(line)
        elif line.strip():
            raise Failure(f"the block begins without a command: {line}")
    return out


def pattern_of(lines):
    """A pattern of the output: `...` in a line stands for anything in it, as a line for any lines."""
    parts = []
    for line in lines:
        if line.strip() in ("...", "…"):
            parts.append(r"(?:.*\n)*?")
        else:
            pieces = re.split(r"\.\.\.|…", line.rstrip())
            parts.append(".*?".join(re.sub(r"(?:\\ )+", r"[ ]+", re.escape(piece)) for piece in pieces) + r"[ \t]*\n")
    return "".join(parts)


def difference(expected, actual):
    """The first line of the expected output that does not fit, for people."""
    for count in range(1, len(expected) + 1):
        if not re.match(pattern_of(expected[:count]), actual):
            return f"this line does not fit: {expected[count - 1]}"
    return "there is more output than expected"


class Page:
    def __init__(self, arguments):
        self.arguments = arguments
        self.folder = arguments.scratch / arguments.document.stem
        if arguments.document.parent.name not in ("docs", ROOT.name):
            self.folder = arguments.scratch / f"{arguments.document.parent.name}-{arguments.document.stem}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        tools = self.folder / ".bin"
        tools.mkdir()
        (tools / "attnc").symlink_to(arguments.attnc.resolve())
        # Not links: a Python of an environment knows its packages by its own path.
        for name in ("python", "python3"):
            (tools / name).write_text(f'#!/bin/sh\nexec "${{ATTNC_PAGE_PYTHON:-{sys.executable}}}" "$@"\n')
            (tools / name).chmod(0o755)
        for name in SHOWN:
            (self.folder / name).symlink_to(ROOT / name)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ATTNC_")},
            "PATH": f"{tools}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "ATTNC_CACHE_DIR": str(arguments.scratch / "kernels"),
            "ATTNC_COMMAND": str(pathlib.Path(arguments.attnc).resolve()),
            "PYTHONPATH": str(ROOT / "tools/python"),
            "NO_COLOR": "1",
            "COLUMNS": "80",
        }
        if arguments.library:
            self.environment["ATTNC_LIBRARY"] = str(arguments.library.resolve())
        if not arguments.gpu:
            self.environment["CUDA_VISIBLE_DEVICES"] = ""
        self.ran, self.left_out, self.failed = 0, [], 0
        self.known = {}

    def has(self, module):
        if module not in self.known:
            python, also = self.python_with(module), "" if module == "jax" else ", safetensors"
            self.known[module] = bool(python) and subprocess.run(
                [python, "-c", f"import {module}{also}"], capture_output=True).returncode == 0
        return self.known[module]

    def python_with(self, module):
        return self.arguments.jax if module == "jax" else self.arguments.python

    def shell(self, command, environment=None):
        return subprocess.run(["bash", "-c", command], cwd=self.folder, env=environment or self.environment, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=TIMEOUT)

    def environment_for(self, block):
        if not block.needs:
            return self.environment
        return {**self.environment, "ATTNC_PAGE_PYTHON": self.python_with(block.needs)}

    def console(self, block):
        for command, expected in commands_of(block.text):
            result = self.shell(command, self.environment_for(block))
            actual = "".join(line.rstrip() + "\n" for line in result.stdout.splitlines())
            while expected and not expected[-1].strip():
                expected.pop()
            if not re.fullmatch(pattern_of(expected) + r"\n*", actual):
                why = difference(expected, actual)
                raise Failure(f"$ {command}\n{why}\nit printed (exit code {result.returncode}):\n{actual}")

    def bash(self, block):
        result = self.shell("set -eo pipefail\n" + block.text, self.environment_for(block))
        if result.returncode:
            raise Failure(f"exit code {result.returncode}:\n{result.stdout}")

    def python(self, block):
        name = block.title or "block.py"
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(block.text)
        if not block.run:
            ast.parse(block.text)
            return
        result = self.shell(f"python {shlex.quote(name)}", self.environment_for(block))
        if result.returncode:
            raise Failure(f"exit code {result.returncode}:\n{result.stdout}")

    def parses(self, block):
        """Starts the `attnc` lines of a block that needs a GPU: without one they fail, but not as wrong usage."""
        lines = [command for command, _ in commands_of(block.text)] if block.language == "console" else (
            block.text.replace("\\\n", " ").splitlines())
        for command in lines:
            command = command.replace("\\\n", " ").partition(" | ")[0]
            if command.startswith("attnc "):
                result = self.shell(command, {**self.environment, "ATTNC_NO_COMPILE": "1"})
                if result.returncode == WRONG_USAGE:
                    raise Failure(f"$ {command}\n{result.stdout}")

    def block(self, block):
        if block.not_run:
            return
        is_shell = block.language in ("console", "bash", "sh")
        if block.title and block.language != "python":
            (self.folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / block.title).write_text(block.text)
        if block.language == "json":
            json.loads(block.text)
        if block.language in COMPILERS and block.title:
            cuda = self.arguments.cuda
            if "<cuda_runtime" in block.text and not (cuda and (cuda / "crt").is_dir()):  # NVRTC's wheels have half
                self.left_out.append((block, "needs the headers of a CUDA toolkit"))
                return
            also = f"-isystem {shlex.quote(str(cuda))} " if cuda else ""
            result = self.shell(
                f"{COMPILERS[block.language]} -fsyntax-only -I include {also}{shlex.quote(block.title)}")
            if result.returncode:
                raise Failure(result.stdout)
            self.ran += 1
        if not is_shell and block.language != "python":
            return
        if block.gpu and not self.arguments.gpu:
            if block.language == "python":
                (self.folder / (block.title or "block.py")).write_text(block.text)
                ast.parse(block.text)
            else:
                self.parses(block)
            self.left_out.append((block, "needs a GPU"))
            return
        if block.needs and not self.has(block.needs):
            if block.language == "python":
                (self.folder / (block.title or "block.py")).write_text(block.text)
                ast.parse(block.text)
            self.left_out.append((block, f"needs {block.needs}"))
            return
        {"console": self.console, "python": self.python}.get(block.language, self.bash)(block)
        self.ran += 1

    def run(self):
        for block in blocks.read(self.arguments.document):
            try:
                self.block(block)
            except (Failure, SyntaxError, ValueError, subprocess.TimeoutExpired) as error:
                self.failed += 1
                print(f"{block.place}: FAILED\n{error}\n")
        for block, why in self.left_out:
            print(f"{block.place}: left out: {why}")
        counts = f"{self.ran} blocks ran, {self.failed} failed, {len(self.left_out)} were left out"
        print(f"{self.arguments.document.name}: {counts}")
        if not self.ran and not self.failed and self.left_out:
            print("SKIPPED: no block of this page can run here")
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("document", type=pathlib.Path)
    parser.add_argument("--attnc", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path)
    parser.add_argument("--python", default="")
    parser.add_argument("--jax", default="")
    parser.add_argument("--cuda", type=pathlib.Path)
    parser.add_argument("--gpu", action="store_true")
    arguments = parser.parse_args()
    arguments.document = arguments.document.resolve()
    arguments.scratch = arguments.scratch.resolve()
    # A bare name would find the page's own `python`, which starts it again.
    arguments.python, arguments.jax = (shutil.which(python) or "" for python in (arguments.python, arguments.jax))
    if arguments.gpu and subprocess.run(["sh", "-c", "nvidia-smi -L"], capture_output=True).returncode:
        print("SKIPPED: no GPU")
        return 0
    return Page(arguments).run()


if __name__ == "__main__":
    sys.exit(main())
