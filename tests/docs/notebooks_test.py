#!/usr/bin/env python3
"""Runs the notebooks of docs/notebooks from top to bottom, without Jupyter, and compares what cells show with the outputs
that are stored in them.

  ATTNC_COMMAND=attnc ATTNC_LIBRARY=libattnc.so notebooks_test.py [--write]

A cell with the tag `nbval-ignore-output` only runs: its numbers depend on the machine. --write stores the outputs instead.
Prints SKIPPED if torch is not installed.
"""

import ast
import contextlib
import io
import json
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # stored outputs are those of the CPU
os.environ["PYTHONPATH"] = str(ROOT / "tools/python")  # of `python -m attnc`
import needs

needs.modules("torch")
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
IGNORED = "nbval-ignore-output"


def lines_of(text):
    return text.splitlines(keepends=True)


def shown(value):
    """Returns the output of a cell that ends with a value."""
    picture = getattr(value, "_repr_svg_", lambda: None)()
    data = {"image/svg+xml": lines_of(picture)} if picture else {"text/plain": lines_of(repr(value))}
    return {"data": data, "execution_count": None, "metadata": {}, "output_type": "execute_result"}


def outputs_of(source, place, names):
    """Runs a cell in `names`. Returns its outputs as notebooks store them."""
    tree, value, outputs, said = ast.parse(source, place), None, [], io.StringIO()
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(said):
        exec(compile(tree, place, "exec"), names)
        if last:
            value = eval(compile(ast.Expression(last.value), place, "eval"), names)
    if said.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines_of(said.getvalue())})
    return outputs + ([shown(value)] if value is not None else [])


def ran(notebook, name):
    """Yields each cell of code, its place, and the outputs that it has now."""
    names = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] == "code":
            place = f"{name}, cell {number}"
            yield cell, place, outputs_of("".join(cell["source"]), place, names)


def text_of(notebook):
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


class Notebooks(unittest.TestCase):
    def test_cells_show_what_is_stored(self):
        for path in NOTEBOOKS:
            for cell, place, outputs in ran(json.loads(path.read_text()), path.name):
                with self.subTest(place):
                    if IGNORED not in cell["metadata"].get("tags", ()):
                        self.assertEqual(outputs, cell["outputs"], "--write stores what cells show")

    def test_files_are_small_and_laid_out_for_diffs(self):
        for path in NOTEBOOKS:
            with self.subTest(path.name):
                self.assertEqual(path.read_text(), text_of(json.loads(path.read_text())))
                self.assertLess(path.stat().st_size, 64 * 1024)


def write():
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text())
        for cell, _, outputs in ran(notebook, path.name):
            cell["outputs"] = outputs
        path.write_text(text_of(notebook))


if __name__ == "__main__":
    write() if sys.argv[1:] == ["--write"] else unittest.main()
