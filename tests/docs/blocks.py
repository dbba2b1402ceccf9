#!/usr/bin/env python3
"""Reads the code blocks of documents.

  blocks.py --language c|cpp --out FILE DOCUMENT ...

Writes the examples of the documents in a language to one source file, which the build compiles. Blocks with a title are
files of their own, and left out, as are those behind a remark `<!-- not run: why -->`.

docs/site/README.md has the conventions of documents.
"""

import argparse
import dataclasses
import pathlib
import re
import sys

REMARK = re.compile(r"^\s*<!--\s*(run|gpu|not run)(?::\s*(.*?))?\s*-->\s*$")
FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*\{?\.?([\w+-]*)([^`]*)$")


@dataclasses.dataclass
class Block:
    path: pathlib.Path
    line: int  # of the fence
    language: str
    title: str  # "" without one
    text: str
    run: bool = False
    needs: str = ""  # torch, transformers, jax
    gpu: bool = False
    not_run: str = ""  # why

    @property
    def place(self):
        return f"{self.path.name}:{self.line}"


def read(path):
    """The blocks of a document, in order. Raises ValueError for a fence that is not closed, or a remark without one."""
    path = pathlib.Path(path)
    blocks, remarks = [], []
    lines = path.read_text().splitlines()
    index = 0
    while index < len(lines):
        remark = REMARK.match(lines[index])
        fence = FENCE.match(lines[index])
        if remark:
            remarks.append((remark.group(1), remark.group(2) or "", index + 1))
        elif fence:
            indent, mark, language, rest = fence.groups()
            end = next((i for i in range(index + 1, len(lines)) if lines[i].strip() == mark), None)
            if end is None:
                raise ValueError(f"{path}:{index + 1}: the block is not closed")
            body = [line[len(indent):] if line.startswith(indent) else line for line in lines[index + 1 : end]]
            title = re.search(r'title="([^"]*)"', rest)
            block = Block(path, index + 1, language, title.group(1) if title else "", "\n".join(body) + "\n")
            for kind, value, line in remarks:
                if kind == "gpu":
                    block.gpu = True
                elif kind == "not run":
                    if not value:
                        raise ValueError(f"{path}:{line}: `not run` must say why")
                    block.not_run = value
                else:
                    block.run = True
                    if value not in ("", "torch", "transformers", "jax"):
                        raise ValueError(f"{path}:{line}: `run: {value}`: only torch, transformers and jax are known")
                    block.needs = value
            blocks.append(block)
            remarks = []
            index = end
        elif lines[index].strip() and remarks:
            raise ValueError(f"{path}:{remarks[0][2]}: no code block follows this remark")
        index += 1
    return blocks


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--language", choices=("c", "cpp"), required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("documents", nargs="+")
    arguments = parser.parse_args()
    parts = []
    for document in arguments.documents:
        for block in read(document):
            if block.language == arguments.language and not block.not_run and not block.title:
                parts.append(f'#line {block.line + 1} "{pathlib.Path(document).resolve()}"\n{block.text}')
    arguments.out.write_text("".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
