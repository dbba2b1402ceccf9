#!/usr/bin/env python3
"""Finds mannerisms in comments and documents, and sentences of public text that are too long.

  tools/check_prose.py [FILE ...]      default: all files of the project

Each finding is a line `file:line: what: text`. Exit code 1 if there are some.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = (".h", ".hpp", ".cpp", ".c", ".cuh", ".cu", ".def")
FOLDERS = ("include", "src", "dsl", "templates", "tools", "bench", "tests")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "dsl/SPEC.md", "dsl/mods/README.md", "bench/README.md", "bench/NOTES.md")
MOST_WORDS = 25  # of a sentence in public text

# CONTRIBUTING.md, "Words", says what to write instead.
MANNERISMS = {
    "inverted order": r"(?:^|[.:;] )Of (?:a|an|the|all|one|its|those|each|every|two|what|some|no)\b",
    "a sentence begins with Those": r"(?:^|\. )Those\b",
    "trailing too": r",? too(?=[.,;:)]|$)",
    "alone": r"\balone\b",
    "beside": r"\bbeside\b",
    "such": r"\bsuch\b(?! as\b)",
    "so many": r"\bso many\b",
    "what there is": r"\bwhat there is\b|\bthere is none\b|\bwho has none\b",
    "has it": r"\bas [\w:()]+ (?:has|have) it\b|\bis to be had\b",
    "likewise": r"\blikewise\b",
    "history": r"\bno longer\b|\bused to be\b",
}


def comments(text):
    """(line, words) of each block of comments of C++: lines that follow each other are one."""
    block, first, last = [], 0, -1
    for number, line in enumerate(text.splitlines(), 1):
        at = re.search(r'(?<![:"\\])//[/!<]*\s?(.*)$', line)
        if not at or line.count('"', 0, at.start()) % 2:
            continue
        is_own = not line[: at.start()].strip()
        if block and (number != last + 1 or not is_own):
            yield first, " ".join(block)
            block = []
        if not block:
            first = number
        block.append(at.group(1).strip())
        last = number
        if not is_own:
            yield first, " ".join(block)
            block = []
    if block:
        yield first, " ".join(block)


def paragraphs(text):
    """(line, words) of each paragraph and item of a document, without code."""
    block, first, is_code = [], 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.startswith("```"):
            is_code = not is_code
        ends = is_code or not line.strip() or line.startswith(("```", "    ", "|", "#", "<", "* ", "- "))
        if ends and block:
            yield first, " ".join(block)
            block = []
        if is_code or line.startswith(("```", "    ", "|", "#", "<")) or not line.strip():
            continue
        if not block:
            first = number
        block.append(line.strip().removeprefix("* ").removeprefix("- "))


def sentences(text):
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`(])|(?<=:)\s+(?=[A-Z])", text)


def findings(path):
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    if path.suffix == ".ipynb":  # lines are then those of its texts
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    is_code = path.suffix in CODE
    # A note of a measurement is a list of figures, which may be long.
    is_public = name.startswith("include/") or not (is_code or name.startswith("bench/"))
    for line, block in comments(text) if is_code else paragraphs(text):
        plain = re.sub(r"`[^`]*`", "x", block)
        for what, pattern in MANNERISMS.items():
            for hit in re.finditer(pattern, plain):
                around = plain[max(0, hit.start() - 30) : hit.end() + 30]
                yield f"{name}:{line}: {what}: {around}"
        for sentence in sentences(plain) if is_public else ():
            words = len(re.findall(r"[^\s]+", sentence))
            if words > MOST_WORDS:
                yield f"{name}:{line}: {words} words: {sentence[:90]}"


def files():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in CODE and "golden" not in path.parts:
                yield path
    for name in DOCUMENTS:
        yield ROOT / name
    yield from sorted((ROOT / "bench/notes").glob("*.md"))
    yield from sorted(path for kind in ("*.md", "*.ipynb") for path in (ROOT / "docs").rglob(kind))


def main():
    found = [line for path in (map(pathlib.Path.resolve, map(pathlib.Path, sys.argv[1:])) if sys.argv[1:] else files())
             for line in findings(path)]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
