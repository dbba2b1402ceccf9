#!/usr/bin/env python3
"""Checks the includes and the names of the sources: dependencies between layers point one way, no files include each
other in a cycle, programs use the public interface, third-party headers stay in their folders, and no name is used that
only some of the supported LLVM releases have.

  python3 tools/check_layers.py [--root DIR]

Prints each offence and exits with 1 if there is any.
"""
import argparse
import pathlib
import re
import sys

# The layers that every file may include: the public headers, and what no layer owns. Public headers include only public
# headers.
OPEN = {"attnc", "support"}
# A layer, by the name that includes it, and the layers that it may include besides itself and those of OPEN. A folder
# belongs to the layer with the longest name that begins its path, so dsl/syntax is a layer of its own.
LAYERS = {
    "attnc": set(),
    "support": set(),
    "ir": set(),
    "dsl": {"ir", "dsl/syntax", "dsl/objects", "dsl/tracing"},
    "dsl/syntax": {"dsl"},
    "dsl/objects": {"dsl", "dsl/syntax", "ir"},
    "dsl/builtins": {"dsl", "dsl/syntax", "dsl/objects", "ir"},
    "dsl/tracing": {"dsl", "dsl/syntax", "dsl/objects", "dsl/builtins", "ir"},
    "analysis": {"ir"},
    "passes": {"ir", "analysis"},
    "codegen": {"ir", "analysis"},
    "plan": {"ir", "analysis", "passes", "codegen", "jit"},
    "cache": set(),
    "jit": {"cache"},
    "reference": {"ir"},
    "api": {"ir", "dsl", "analysis", "passes", "codegen", "plan", "cache", "jit", "reference"},
    # Uses the public interface; only the possible block masks come from inside.
    "c": {"plan"},
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
# Programs, and their tests, that use the library as outsiders do: of its headers, only those of OPEN.
PROGRAMS = ("tools", "bench", "tests/cli", "tests/bench")
# The internal headers that they include nevertheless: header -> files that may.
EXCEPTIONS = {
    # The fp64 oracle.
    "reference/cache.h": ["tools/attnc/pages.cpp"],
    "reference/attention.h": ["tools/attnc/operands.cpp", "tools/attnc/verify.h"],
    "reference/gradients.h": ["tools/attnc/run.cpp", "tools/attnc/verify.h"],
    "reference/gradient_tolerance.h": ["tools/attnc/verify.cpp"],
    "reference/compare.h": ["tools/attnc/verify.h", "bench/forward.cpp", "bench/measure.cpp"],
    # `check` and `explain` show internals: operations by level, proofs, the census of blocks.
    "ir/ir.h": ["tools/attnc/journey.h", "tools/attnc/json_report.h", "tools/attnc/mod_text.h", "tools/attnc/explanation.h",
                "tools/attnc/usage.cpp", "tools/attnc/work.h"],
    "ir/levels.h": ["tools/attnc/grid_text.cpp"],
    "ir/walk.h": [
        "tools/attnc/collect_captures.cpp", "tools/attnc/grid_text.cpp", "tools/attnc/journey.cpp", "tools/attnc/probe.cpp",
        "tools/attnc/verify.cpp",
    ],
    # `check` shows the box of keys that a query on a grid sees.
    "passes/beside_grid.h": ["tools/attnc/grid_text.cpp"],
    "passes/pipeline.h": ["tools/attnc/grid_text.cpp", "tools/attnc/query_map.cpp"],
    "analysis/operation_count.h": ["tools/attnc/mod_text.h"],
    "analysis/gather_proofs.h": ["tools/attnc/check.cpp"],
    "api/mod_impl.h": [
        "tools/attnc/grid_text.cpp",
        "tools/attnc/check.cpp", "tools/attnc/emit.cpp", "tools/attnc/explain.cpp",
        "tools/attnc/gradient_options.cpp", "tools/attnc/probe.cpp", "tools/attnc/query_map.cpp", "tools/attnc/run.cpp",
        "tools/attnc/work.cpp",
        "tests/cli/explain_test.cpp", "tests/cli/probe_test.cpp", "tests/cli/verify_test.cpp",
    ],
    "ir/printer.h": ["tools/attnc/emit.cpp"],
    "passes/sequences.h": ["tools/attnc/work.cpp"],
    "api/mask_census.h": ["tools/attnc/explain.cpp", "tools/attnc/explanation.h", "tools/attnc/work.cpp"],
    "api/grid_census.h": ["tools/attnc/explanation.h", "tools/attnc/work.h"],
    "analysis/grid_box.h": [
        "tools/attnc/explanation.cpp", "tools/attnc/grid_text.cpp", "tools/attnc/query_map.cpp", "tools/attnc/work.cpp",
    ],
    "plan/grid_plan.h": ["tools/attnc/work.cpp"],
    "plan/mask_shape.h": ["tools/attnc/explain.cpp", "tools/attnc/mask.cpp", "tools/attnc/work.cpp"],
    "plan/kernel_mod.h": ["tools/attnc/explanation.h"],
    # Captures of a file are checked before anything is launched; pairs that live are counted one by one.
    "ir/bind.h": [
        "tools/attnc/explain.cpp", "tools/attnc/mask.cpp", "tools/attnc/operands.cpp", "tools/attnc/probe.cpp",
        "tools/attnc/query_map.cpp", "tools/attnc/work.cpp", "bench/cases.cpp", "tests/cli/explain_test.cpp",
        "tests/cli/probe_test.cpp",
    ],
    "ir/bindings.h": ["tools/attnc/journey.h"],
    # Captures are drawn with extents that the mod accepts.
    "ir/conditions.h": ["tools/attnc/random.cpp"],
    "ir/interpreter.h": [
        "bench/cases.cpp", "tools/attnc/journey.cpp", "tools/attnc/mask_map.h", "tools/attnc/probe.cpp",
        "tools/attnc/query_map.cpp",
    ],
    # The available GPUs and NVRTC.
    "plan/arch.h": ["tools/attnc/usage.cpp"],
    "jit/nvrtc.h": ["tools/attnc/usage.cpp", "tools/attnc/version.cpp"],
    "jit/current_device.h": ["tools/device/device.h", "tools/device/limits.cpp"],
    "jit/driver.h": ["tools/device/functions.h"],
    # `cache` shows the directory and the packs themselves.
    "cache/inventory.h": ["tools/attnc/cache.cpp"],
    "cache/pack.h": ["tools/attnc/cache.cpp", "tools/attnc/kernel_rows.cpp"],
    "cache/prune.h": ["tools/attnc/cache.cpp"],
    "jit/cache_options.h": ["tools/attnc/cache.cpp"],
}
# Names of LLVM 14 that a later release lacks: a build with only 14 would not notice.
UNPORTABLE = {
    r"\bllvm::None\b|\bllvm::Optional\b": "use std::optional, or {} for an argument",
    r"\bmakeArrayRef\b|\bmakeMutableArrayRef\b": "name the type: llvm::ArrayRef<T>(...)",
    r"\.(?:starts|ends)with(?:_lower|_insensitive)?\(": "use std::string_view's",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
OWN_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def layer_of(path):
    """Returns the layer of an include as written, or of a folder below src/ or include/; None for anything else."""
    parts = path.split("/")
    names = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in LAYERS), None)


def inside(folder, homes):
    return any(folder == home or folder.startswith(home + "/") for home in homes)


def allowed(file, header, exceptions):
    """Returns why `file` may not include `header`, or None. Removes a used exception from `exceptions`."""
    folder = file.rpartition("/")[0]
    for prefix, homes in FENCES.items():
        if header.startswith(prefix):
            if not inside(folder, homes):
                return f"<{prefix}> belongs to {', '.join(homes) or 'nobody'}"
            break
    if inside(folder, PROGRAMS) and layer_of(header.rpartition("/")[0]) not in OPEN | {None}:
        if file not in EXCEPTIONS.get(header, []):
            return "programs use the public interface, include/attnc, and src/support; EXCEPTIONS names those that may do otherwise"
        exceptions.discard((header, file))
    if not folder.startswith(("include/", "src/", "dsl")):
        return None
    own = layer_of(re.sub("^(include|src)/", "", folder))
    other = layer_of(header.rpartition("/")[0])
    if own and other and other not in LAYERS[own] | {own} | (OPEN if own != "attnc" else set()):
        return f"{own} may not include {other}"
    return None


def unit_of(file):
    return file.rpartition(".")[0]


def unit_of_include(file, header, files):
    """Returns the unit that an include as written in `file` names; None outside the tree."""
    folders = (file.rpartition("/")[0], "include", "src", "", "tests", "tools/attnc", "templates")
    names = (f"{folder}/{header}".lstrip("/") for folder in folders)
    return next((unit_of(name) for name in names if name in files), None)


def way_back(unit, edges):
    """Returns the shortest cycle of includes that begins and ends with `unit`, or None."""
    ways = [[unit]]
    met = set()
    for way in ways:
        for other in sorted(edges.get(way[-1], ())):
            if other == unit:
                return way + [unit]
            if other not in met:
                met.add(other)
                ways.append(way + [other])
    return None


def cycles(files):
    """Returns the errors of cycles of includes. `files`: the headers that each file includes, by file."""
    edges = {}
    for file, headers in files.items():
        for header in headers:
            other = unit_of_include(file, header, files)
            if other not in (None, unit_of(file)):
                edges.setdefault(unit_of(file), set()).add(other)
    errors, seen = [], set()
    for unit in sorted(edges):
        way = None if unit in seen else way_back(unit, edges)
        if way:
            seen.update(way)
            errors.append(f"{' -> '.join(way)}: a cycle of includes; move what both need into a unit of its own")
    return errors


def check(root):
    errors = []
    included = {}
    exceptions = {(header, file) for header, files in EXCEPTIONS.items() for file in files}
    for top in ("include", "src", "dsl", "tools", "bench", "tests", "templates"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".cuh", ".def"):
                continue
            text = path.read_text()
            for pattern, advice in UNPORTABLE.items():
                for match in re.finditer(pattern, text):
                    line = text.count("\n", 0, match.start()) + 1
                    errors.append(f"{path.relative_to(root)}:{line}: {match.group()}: not in every LLVM; {advice}")
            included[str(path.relative_to(root))] = OWN_INCLUDE.findall(text)
            for header in INCLUDE.findall(text):
                if top == "templates":
                    # Only NVRTC compiles a template: it includes templates and the two generated headers.
                    known = (root / "templates" / header).exists() or header.startswith("attnc_")
                    why = None if known or header in ("math.h", "string.h") else "templates include only templates"
                else:
                    why = allowed(str(path.relative_to(root)), header, exceptions)
                if why:
                    errors.append(f"{path.relative_to(root)}: includes {header}: {why}")
    errors += cycles(included)
    for header, file in sorted(exceptions):
        errors.append(f"tools/check_layers.py: {file} does not include {header}: the exception is not needed")
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    errors = check(parser.parse_args().root)
    print("\n".join(errors) or "layers: every include points the right way")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
