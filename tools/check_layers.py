#!/usr/bin/env python3
"""Checks that includes point one way, that third-party headers stay behind their fences, and that no name is used which
only some of the LLVM releases that we build with have.

  python3 tools/check_layers.py [--root DIR]

Prints each offence and exits with 1 if there is any.
"""
import argparse
import pathlib
import re
import sys

# A layer, by the name that includes it, and the layers that it may include beside itself and the public headers
# ("attnc"). A folder belongs to the layer with the longest name that begins its path, so dsl/syntax is a room of its own.
LAYERS = {
    "attnc": set(),
    "ir": set(),
    "dsl": {"ir", "dsl/syntax", "dsl/values", "dsl/tracing"},
    "dsl/syntax": {"dsl"},
    "dsl/values": {"dsl", "dsl/syntax", "ir"},
    "dsl/builtins": {"dsl", "dsl/syntax", "dsl/values", "dsl/tracing", "ir"},
    "dsl/tracing": {"dsl", "dsl/syntax", "dsl/values", "dsl/builtins", "ir"},
    "analysis": {"ir"},
    "passes": {"ir", "analysis"},
    "codegen": {"ir", "analysis"},
    "plan": {"ir", "analysis", "passes", "codegen", "jit"},
    "cache": set(),
    "jit": {"cache"},
    "reference": {"ir"},
    "api": {"ir", "dsl", "analysis", "passes", "codegen", "plan", "cache", "jit", "reference"},
}
# header prefix -> folders that may include it
FENCES = {
    "cuda.h": ["src/jit", "tools/device"],
    "jit/driver.h": ["src/jit", "tools/device"],
    "nvrtc.h": ["src/jit"],
    "CLI/": ["tools", "bench"],
    "nlohmann/": ["tools", "bench", "tests"],
    "llvm/Support/SourceMgr.h": ["dsl", "src/ir"],
    "llvm/Support/CommandLine.h": [],
    "llvm/": ["src", "dsl", "tests", "tools", "bench"],
    "fmt/": ["src", "dsl", "tests", "tools", "bench"],
    "catch2/": ["tests"],
    "templates/": ["src/plan", "tests"],
    "tools/device/": ["tools", "bench", "tests"],
    "tools/": ["tests"],
}
# In LLVM 14, gone from a later release: a build with 14 alone would not notice.
UNPORTABLE = {
    r"\bllvm::None\b|\bllvm::Optional\b": "use std::optional, or {} for an argument",
    r"\bmakeArrayRef\b|\bmakeMutableArrayRef\b": "name the type: llvm::ArrayRef<T>(...)",
    r"\.(?:starts|ends)with(?:_lower|_insensitive)?\(": "use std::string_view's",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def layer_of(path):
    """The layer of an include as it is written, or of a folder below src/ or include/; None for anything else."""
    parts = path.split("/")
    names = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in LAYERS), None)


def allowed(folder, header):
    """Why `header` may not be included from `folder`, or None."""
    for prefix, homes in FENCES.items():
        if header.startswith(prefix):
            inside = any(folder == home or folder.startswith(home + "/") for home in homes)
            return None if inside else f"<{prefix}> belongs to {', '.join(homes) or 'nobody'}"
    if not folder.startswith(("include/", "src/", "dsl")):
        return None
    own = layer_of(re.sub("^(include|src)/", "", folder))
    other = layer_of(header.rpartition("/")[0])
    if own and other and other not in LAYERS[own] | {own, "attnc"}:
        return f"{own} may not include {other}"
    return None


def check(root):
    errors = []
    for top in ("include", "src", "dsl", "tools", "bench", "tests", "templates"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".cuh", ".def"):
                continue
            folder = str(path.relative_to(root).parent)
            text = path.read_text()
            for pattern, advice in UNPORTABLE.items():
                for match in re.finditer(pattern, text):
                    line = text.count("\n", 0, match.start()) + 1
                    errors.append(f"{path.relative_to(root)}:{line}: {match.group()}: not in every LLVM; {advice}")
            for header in INCLUDE.findall(text):
                if top == "templates":
                    # A template is handed to NVRTC alone: it includes templates and the two generated headers.
                    inside = (root / "templates" / header).exists() or header.startswith("attnc_")
                    why = None if inside or header in ("math.h", "string.h") else "templates include only templates"
                else:
                    why = allowed(folder, header)
                if why:
                    errors.append(f"{path.relative_to(root)}: includes {header}: {why}")
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    errors = check(parser.parse_args().root)
    print("\n".join(errors) or "layers: every include points the right way")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
