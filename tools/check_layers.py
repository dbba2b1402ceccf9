#!/usr/bin/env python3
"""Checks the includes and the names of the sources: dependencies between layers point one way, no files include each
other in a cycle, nor do modules of the Python package, also by imports within functions; programs use the public
interface, third-party headers stay in their folders, and no name is used that only some of the supported LLVM releases
have.

  python3 tools/check_layers.py [--root DIR]

Prints each offence and exits with 1 if there is any.
"""
import argparse
import ast
import graphlib
import pathlib
import re
import sys

# The folders of the command, and which of them each may include. Files beside them are for all.
COMMAND = {
    "": set(),
    "problem": set(),  # mods, options and operands: from files, texts and random numbers
    "show": {"problem"},  # texts, pictures, pages, JSON
    "commands": {"problem", "show"},
}

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
    "dsl/objects": {"dsl", "dsl/syntax", "ir", "analysis"},
    "dsl/builtins": {"dsl", "dsl/syntax", "dsl/objects", "ir"},
    "dsl/tracing": {"dsl", "dsl/syntax", "dsl/objects", "dsl/builtins", "ir"},
    "analysis": {"ir"},
    "passes": {"ir", "analysis"},
    "codegen": {"ir", "analysis"},
    "launch": {"ir", "jit"},
    "plan": {"ir", "analysis", "passes", "codegen", "jit", "launch"},
    "families": {"ir", "analysis", "passes", "codegen", "jit", "launch", "plan"},
    "cache": set(),
    "jit": {"cache"},
    "reference": {"ir"},
    "api": {"ir", "dsl", "analysis", "passes", "codegen", "launch", "plan", "families", "cache", "jit", "reference"},
    "inspect": {"ir", "analysis", "passes", "codegen", "launch", "plan", "families", "jit", "api"},
    "shard": {"passes", "jit", "api"},
    "proofs": {"ir", "analysis", "passes", "jit", "api"},
    "infer": {"ir", "analysis", "api"},
    # Uses the public interface; only the possible block masks come from inside.
    "c": {"launch"},
    # Uses the C interface.
    "xla": set(),
}
# header prefix -> folders that may include it
FENCES = {
    "cuda.h": ["src/jit", "tools/device"],
    "jit/driver.h": ["src/jit", "tools/device"],
    "nvrtc.h": ["src/jit"],
    "CLI/": ["tools", "bench"],
    "nlohmann/": ["src/inspect", "tools", "bench", "tests"],
    "llvm/Support/SourceMgr.h": ["dsl", "src/ir"],
    "llvm/Support/CommandLine.h": [],
    "llvm/": ["src", "dsl", "tests", "tools", "bench"],
    "fmt/": ["src", "dsl", "tests", "tools", "bench"],
    "catch2/": ["tests"],
    "templates/": ["src/launch", "src/plan", "src/families", "tests"],
    "tools/device/": ["tools", "bench", "tests"],
    "tools/": ["tests"],
}
# Programs, and their tests, that use the library as outsiders do: of its headers, only those of OPEN.
PROGRAMS = ("tools", "bench", "tests/cli", "tests/bench")
# The internal headers that they include nevertheless: header -> files that may.
EXCEPTIONS = {
    # The fp64 oracle.
    "api/check_values.h": ["tools/attnc/problem/oracle.cpp"],
    "api/mod_impl.h": ["tools/attnc/problem/oracle.cpp", "bench/row_check.cpp"],
    "reference/operand_values.h": ["tools/attnc/problem/operands.cpp"],
    "reference/problem.h": ["tools/attnc/problem/operands.cpp"],
    "reference/cache.h": ["tools/attnc/problem/pages.cpp"],
    "reference/compare.h": ["tools/attnc/commands/verify.h", "bench/forward.cpp", "bench/measure.cpp"],
    "reference/error_bounds.h": ["tools/attnc/problem/oracle.h"],
    "reference/some_rows.h": ["bench/row_check.cpp"],
    "ir/walk.h": ["bench/row_check.cpp"],
    # The builder of block masks by itself.
    "api/compiler_access.h": ["bench/masks.cpp"],
    # The GPU.
    "jit/current_device.h": ["tools/device/device.h", "tools/device/limits.cpp"],
    "jit/driver.h": ["tools/device/functions.h"],
    "jit/measure.h": ["tools/device/load.cpp"],
    # `cache` shows the directory and the packs themselves.
    "cache/inventory.h": ["tools/attnc/commands/cache.cpp"],
    "cache/pack.h": ["tools/attnc/commands/cache.cpp", "tools/attnc/show/kernel_rows.cpp"],
    "cache/prune.h": ["tools/attnc/commands/cache.cpp"],
    "jit/cache_options.h": ["tools/attnc/commands/cache.cpp"],
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


def room_of_command(path):
    """Returns the folder within tools/attnc, "" for the files beside these folders; None outside."""
    return path.removeprefix("tools/attnc").strip("/").partition("/")[0] if path.startswith("tools/attnc") else None


def allowed(file, header, exceptions):
    """Returns why `file` may not include `header`, or None. Removes a used exception from `exceptions`."""
    folder = file.rpartition("/")[0]
    room, other = room_of_command(folder), header.partition("/")[0]
    if room is not None and other in COMMAND and other not in COMMAND[room] | {room}:
        return f"tools/attnc/{room} may not include {other}"
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
    """Returns a header with its source, as one. A .hpp has none, and may have the name of a header of C."""
    return file if file.endswith(".hpp") else file.rpartition(".")[0]


def unit_of_include(file, header, files):
    """Returns the unit that an include as written in `file` names; None outside the tree."""
    folders = (file.rpartition("/")[0], "include", "src", "", "tests", "tools/attnc", "templates")
    names = (f"{folder}/{header}".lstrip("/") for folder in folders)
    return next((unit_of(name) for name in names if name in files), None)


def units_of_includes(files):
    """Returns the units that each unit includes. `files`: the headers that each file includes, by file."""
    edges = {}
    for file, headers in files.items():
        for header in headers:
            other = unit_of_include(file, header, files)
            if other not in (None, unit_of(file)):
                edges.setdefault(unit_of(file), set()).add(other)
    return edges


def imports_of(package):
    """Returns the modules that each module of a package imports, also within functions."""
    paths = {path.relative_to(package.parent).with_suffix(""): path for path in package.rglob("*.py")}
    paths = {(name.parent if name.name == "__init__" else name).as_posix(): path for name, path in paths.items()}
    edges, made = {}, {"attnc/_spec"}  # by the build
    for name, path in paths.items():
        home = path.relative_to(package.parent).parts[:-1]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                level, module = getattr(node, "level", 0), getattr(node, "module", None)
                origin = "/".join([*home[: len(home) + 1 - level] * bool(level), *(module.split(".") if module else [])])
                for other in (f"{origin}/{alias.name.replace('.', '/')}".strip("/") for alias in node.names):
                    edges.setdefault(name, set()).add(other if other in paths or other in made else origin)
    return {name: others & paths.keys() for name, others in edges.items()}


def cycles(edges):
    """Returns the error of a cycle, if there is one. `edges`: the units that each unit includes."""
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        return [f"{' -> '.join(reversed(error.args[1]))}: a cycle of includes; move what both need into a unit of its own"]
    return []


def check(root):
    errors = []
    included = {}
    exceptions = {(header, file) for header, files in EXCEPTIONS.items() for file in files}
    for top in ("include", "src", "dsl", "tools", "bench", "tests", "templates"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".hpp", ".cpp", ".cu", ".cuh", ".def"):
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
    errors += cycles(units_of_includes(included)) + cycles(imports_of(root / "tools/python/attnc"))
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
