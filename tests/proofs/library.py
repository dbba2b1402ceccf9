#!/usr/bin/env python3
"""Proves what the docstrings of the library's mods claim, as library.toml says it.

  ATTNC_LIBRARY=libattnc.so python3 library.py [--table] [--seconds N] [--kv-lengths] [MOD ...]

Fails if a claim is refuted, or a mod has none. With --table, prints how many claims each engine decided and in what time:
the table of docs/proofs.md. Claims that need Z3 are undecided without it.
"""

import argparse
import ast
import pathlib
import re
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools" / "python"))
try:
    import tomllib
except ImportError as error:
    sys.exit(print(f"SKIPPED: {error}"))
import attnc

MODS = ROOT / "dsl/mods"
SIGNATURES = {"mask": "mask_mod(b, h, q_idx, kv_idx)", "score": "score_mod(score, b, h, q_idx, kv_idx)",
              "prob": "prob_mod(prob, b, h, q_idx, kv_idx)", "sink": "sink_mod(b, h, q_idx)", "weight": "weight_mod(score, b, h, q_idx, kv_idx)"}


def spelled(expression):
    return re.sub(r"\bkv\b", "kv_idx", re.sub(r"\bq\b", "q_idx", expression))


def rewritten(text, function, expression):
    """Returns a mod whose function returns an expression, instead of what it has."""
    name = SIGNATURES[function].partition("(")[0]
    kept = [node for node in ast.parse(text).body if getattr(node, "name", None) != name]
    return "\n".join(map(ast.unparse, kept)) + f"\ndef {SIGNATURES[function]}:\n    return {spelled(expression)}\n"


def claims_of(text, entry):
    """Yields (words, arguments of attnc.prove)."""
    for function in SIGNATURES:
        if function in entry:
            yield f"{function}: {entry[function]}", {"same_as": rewritten(text, function, entry[function])}
    for claim in entry.get("prove", ()):
        yield claim, {"holds": spelled(claim)}
    for claim in entry.get("never", ()):
        yield f"never {claim}", {"never": spelled(claim)}
    if "rows" in entry:
        yield "every row lives", {"every_row_lives": True}


def proof_of(mod, arguments, entry, options):
    assume, launch = spelled(entry.get("assume", "")), {"seconds": options.seconds, "kv_lengths": options.kv_lengths}
    try:
        return attnc.prove(mod, **arguments, assume=assume, **launch)
    except (attnc.Refuted, attnc.Undecided) as error:
        return error.proof


def table_of(found):
    """Returns the rows of a table: by engine, the number of claims and the time."""
    engines = {"intervals": [], "examples": [], "Z3": [], "undecided": [], "refuted": []}
    for _, proof, taken in found:
        engines[proof.by.split()[0] if proof.answer == "proved" else proof.answer].append(taken)
    lines = ["| decided by | claims | median time | longest |", "|---|---|---|---|"]
    for engine, times in engines.items():
        if times:
            median, longest = statistics.median(times), max(times)
            lines.append(f"| {engine} | {len(times)} | {median * 1e3:.0f} ms | {longest * 1e3:.0f} ms |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--kv-lengths", action="store_true", help="under a cache")
    parser.add_argument("mods", nargs="*")
    options = parser.parse_args()
    entries = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text())
    names = sorted(path.stem for path in MODS.glob("*.py"))
    wrong = [f"{name}: library.toml has no claims of it" for name in names if name not in entries]
    wrong += [f"{name}: dsl/mods has no such mod" for name in entries if name not in names]
    found = []
    for name in options.mods or names:
        path, entry = MODS / f"{name}.py", entries.get(name, {})
        mod = attnc.Mod.load(path)
        for words, arguments in claims_of(path.read_text(), entry):
            start = time.perf_counter()
            proof = proof_of(mod, arguments, entry, options)
            found.append((f"{name}: {words}", proof, time.perf_counter() - start))
            if proof.answer == "refuted":
                wrong.append(f"{name}: {words}\n{proof}")
            elif not options.table:
                print(f"{found[-1][2]:7.2f} s  {proof.answer:10} {name}: {words}", f"({proof.why or proof.by})", flush=True)
    print(table_of(found) if options.table else "")
    for text, proof, _ in found:
        if options.table and proof.answer == "undecided":
            print(f"undecided: {text}: {proof.why}", file=sys.stderr)
    print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
