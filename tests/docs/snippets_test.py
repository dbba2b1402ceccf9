#!/usr/bin/env python3
"""Tests of the tests of documents: a block that is wrong fails, and says where."""

import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CONSOLE = "```console\n$ echo one; echo two\n{}```\n"
# (document, what the test must say; "" if it must pass)
CASES = [
    (CONSOLE.format("one\ntwo\n"), ""),
    (CONSOLE.format("one\nthree\n"), "this line does not fit: three"),
    (CONSOLE.format("one\n"), "more output than expected"),
    (CONSOLE.format("one\ntwo\nthree\n"), "this line does not fit: three"),
    (CONSOLE.format("...\n"), ""),
    (CONSOLE.format("o...e\nt...\n"), ""),
    (CONSOLE.format("o...x\n...\n"), "this line does not fit: o...x"),
    ("```console\n$ echo a \\\n  b\na b\n$ echo c\n> echo d\nc\nd\n```\n", ""),
    ("```console\n$ echo 'a.c'\nabc\n```\n", "this line does not fit: abc"),
    ("```bash\ntrue\nfalse\ntrue\n```\n", "exit code 1"),
    ("```bash\nfalse | true\n```\n", "exit code 1"),
    ("<!-- not run: a test -->\n```bash\nfalse\n```\n", ""),
    ("<!-- not run -->\n```bash\nfalse\n```\n", "must say why"),
    ("<!-- run: numpy -->\n```bash\ntrue\n```\n", "only torch, transformers and jax"),
    ("<!-- run -->\nText.\n", "no code block follows"),
    ("```bash\ntrue\n", "not closed"),
    ('```python title="a.py"\nx = 1\n```\n<!-- run -->\n```python\nfrom a import x\nassert x == 1\n```\n', ""),
    ("<!-- run -->\n```python\nassert False\n```\n", "AssertionError"),
    ("```python\nif x\n```\n", "FAILED"),
    ("```python\nassert False\n```\n", ""),
    ('```text title="in/data.txt"\nhello\n```\n```console\n$ cat in/data.txt\nhello\n```\n', ""),
    ('```cpp title="a.cpp"\nint main() { return x; }\n```\n', "was not declared"),
    ("```json\n{1}\n```\n", "FAILED"),
    ("* item\n\n    ```bash\n    false\n    ```\n", "exit code 1"),
    ("<!-- gpu -->\n```console\n$ attnc --wrong\n```\n", "wrong usage"),
    ("<!-- gpu -->\n```console\n$ attnc run\nout\n```\n", ""),
]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        attnc = folder / "attnc"
        attnc.write_text('#!/bin/sh\n[ "$1" = --wrong ] && echo "wrong usage" && exit 2\nexit 3\n')
        attnc.chmod(0o755)
        page = folder / "page.md"
        for document, says in CASES:
            page.write_text(document)
            command = [sys.executable, HERE / "snippets.py", page, "--attnc", attnc, "--scratch", folder / "s"]
            result = subprocess.run(command, capture_output=True, text=True)
            text = result.stdout + result.stderr
            if (result.returncode != 0) != bool(says) or says not in text:
                failed += 1
                print(f"for\n{document}expected {says or 'success'!r}, got exit code {result.returncode}:\n{text}")
    print(f"{len(CASES) - failed} of {len(CASES)} cases are as expected")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
