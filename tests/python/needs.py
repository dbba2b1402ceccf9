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


def device():
    """Returns what --device names, cpu by default, and takes it out of the arguments. Ends the process with SKIPPED if PyTorch finds
    no GPU for it."""
    if "--device" not in sys.argv:
        return "cpu"
    place = sys.argv.index("--device")
    _, name = sys.argv[place : place + 2]
    del sys.argv[place : place + 2]
    if name == "cuda" and not importlib.import_module("torch").cuda.is_available():
        sys.exit(print("SKIPPED: PyTorch finds no GPU"))
    return name
