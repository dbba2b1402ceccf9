"""Finds attnc and what tests need. Import it first: it puts the package of this tree onto the path, and leaves no
bytecode."""

import importlib
import pathlib
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))


def modules(*names):
    """Ends the process with SKIPPED if one of these modules, or what it imports, is not installed."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            sys.exit(print(f"SKIPPED: {error}"))
