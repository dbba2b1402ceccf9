#!/usr/bin/env python3
"""Runs the tests of the Python package with several versions of PyTorch, and keeps what passed.

  versions.py --library libattnc.so --command attnc [--only NAMES] PYTHON...
                                                                runs, and writes RESULTS, which keeps other versions
  versions.py --table                                           prints the table of RESULTS for documents
  versions.py --check FILE...                                   fails unless one of the files holds this table

PYTHON is an interpreter that has PyTorch. Each file of TESTS runs in a process of its own. The exit status is 1 if a test
failed. `tools/test.sh --torch VERSION...` makes the interpreters and calls this.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "python" / "versions.jsonl"
TESTS = "flex", "guards", "repeats", "translation", "inductor", "flash", "first_hour", "transformers"
_LONGEST = 3600  # seconds of a file of tests
_VERSIONS = """
import importlib.metadata, json, platform
found = {name: None for name in ("torch", "transformers", "numpy")}
for name in found:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
import torch
print(json.dumps({**found, "python": platform.python_version(), "gpu": torch.cuda.is_available()}))
"""


def outcome_of(text, status):
    """Returns what a file of tests came to: counts, and the names of those that failed; or why it was skipped."""
    skipped = re.search(r"^SKIPPED: (.*)", text, re.M)
    if skipped:
        return {"skipped_because": skipped[1]}
    # Of unittest, or of side_by_side.py.
    ran = re.findall(r"^Ran (\d+) tests?", text, re.M) or re.findall(r"^(\d+) run, \d+ failed", text, re.M)
    count = re.findall(r"^(?:OK|FAILED).*skipped=(\d+)", text, re.M)
    failed = sorted(set(re.findall(r"^(?:ERROR:|FAIL:|FAILED ) (\S+)", text, re.M)))
    skips = int(count[-1]) if count else len(re.findall(r"^ok .* skipped: ", text, re.M))
    result = {"ran": int(ran[-1]) if ran else 0, "skipped": skips, "failed": failed}
    if status and not failed or not ran:
        result["failed"] = [f"exit status {status}: {text.strip().splitlines()[-1] if text.strip() else ''}"]
    return result


def described(python):
    """Returns the record of an interpreter, without tests."""
    found = json.loads(subprocess.run([python, "-c", _VERSIONS], check=True, capture_output=True, text=True).stdout)
    return {**found, "tests": {}}


def run(python, library, command, name):
    """Returns the outcome of one file of tests, with the date."""
    environment = {**os.environ, "ATTNC_LIBRARY": library, "ATTNC_COMMAND": command}
    arguments = [python, str(ROOT / "tests" / "python" / f"{name}_test.py")] + [command] * (name == "translation")
    try:
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=_LONGEST)
        text, status = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        text, status = f"more than {_LONGEST} s", 1
    found = outcome_of(text, status)
    if found.get("failed"):
        print(text, flush=True)
    return {**found, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}


def keep(record, name, outcome):
    """Writes one outcome to RESULTS. What other files of tests and other versions came to stays."""
    records = {other["torch"]: other for other in read()}
    tests = records.get(record["torch"], record)["tests"]
    records[record["torch"]] = {**record, "tests": {**tests, name: outcome}}
    RESULTS.write_text("".join(json.dumps(x) + "\n" for x in sorted(records.values(), key=_order)))


def _order(record):
    return [int(part) for part in re.findall(r"\d+", record["torch"])[:3]]


def read(path=RESULTS):
    """Returns the records of a file, from the oldest version of PyTorch to the newest."""
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted(map(json.loads, lines), key=_order)


def _cell(outcome):
    if outcome is None or "skipped_because" in outcome:
        return "not run"
    failed, left = len(outcome["failed"]), f", {outcome['skipped']} skipped" if outcome["skipped"] else ""
    passed = outcome["ran"] - outcome["skipped"] - failed
    return f"{passed} passed{left}" + (f", **{failed} failed**" if failed else "")


def table_of(records):
    """Returns the records as a table in Markdown."""
    lines = [f"| PyTorch | with transformers | {' | '.join(TESTS)} | date |", "|---" * (len(TESTS) + 3) + "|"]
    for record in records:
        cells = [_cell(record["tests"].get(name)) for name in TESTS]
        version, date = record["torch"].partition("+")[0], max(x["date"] for x in record["tests"].values())
        lines.append(f"| {version} | {record['transformers'] or 'none'} | {' | '.join(cells)} | {date} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library"), parser.add_argument("--command")
    parser.add_argument("--table", action="store_true"), parser.add_argument("--check", nargs="+", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(TESTS), help="names of TESTS, separated by commas")
    parser.add_argument("python", nargs="*")
    options = parser.parse_args()
    if options.table:
        return print(table_of(read()))
    if options.check:
        if not any(table_of(read()) in path.read_text() for path in options.check):
            sys.exit(f"no document has the table of {RESULTS.relative_to(ROOT)}, which is:\n{table_of(read())}")
        return None
    library, command = (str(pathlib.Path(path).resolve()) for path in (options.library, options.command))
    failed = False
    for python in options.python:
        record = described(python)
        for name in options.only.split(","):
            outcome = run(python, library, command, name)
            print(record["torch"], name, json.dumps(outcome), flush=True)
            keep(record, name, outcome)
            failed = failed or bool(outcome.get("failed"))
    sys.exit(failed)


if __name__ == "__main__":
    main()
