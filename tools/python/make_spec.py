#!/usr/bin/env python3
"""Writes the module attnc._spec: the structs, enumerators and functions of include/attnc/c/*.h for ctypes, the words of
diagnostics, and the names of the IR's functions.

  python3 tools/python/make_spec.py FILE

The build writes _spec.py next to libattnc.so.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ROOT / "include/attnc/c"
SCALARS = {
    "size_t": "c_size_t", "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "float": "c_float",
    "double": "c_double",
}  # fmt: skip
# What callers in Python give for a member.
GIVEN = {"c_char_p": "str", "c_float": "float", "c_double": "float", "c_int32": "bool", "c_int64": "bool"}
INTRO = '''"""What is in libattnc.so: structs, enumerators, functions, words. Made by tools/python/make_spec.py."""

import ctypes
import typing
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_void_p


class Sized(Structure):
    """A struct that begins with its size."""

    def __init__(self, **members):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)
'''

TEXT = r'("(?:[^"\\]|\\.)*")'  # of C, and so of Python


def rows_of(table, pattern):
    """Returns what a pattern finds in the rows of a table."""
    return re.findall("^" + pattern, (ROOT / table).read_text(), re.M)


# Type in C, name, limit.
CHOICES = rows_of("include/attnc/choices.def", r"ATTNC_CHOICE\(\w+, \w+, (\w+), (\w+), (\w+),")


def read_headers():
    """Returns the declarations of all headers, each after those that it includes, without comments and directives."""
    texts, done = [], set()

    def add(path):
        if path in done:
            return
        done.add(path)
        text = path.read_text()
        for name in re.findall(r'#include "attnc/c/(\w+\.h)"', text):
            add(HEADERS / name)
        text = re.sub(r"//[^\n]*", "", text)
        text = text.replace('#include "attnc/choices.def"\n', "".join(f"{kind} {name};\n" for kind, name, _ in CHOICES))
        texts.append(re.sub(r"^#.*(?:\\\n.*)*$", "", text, flags=re.M))

    for path in sorted(HEADERS.glob("*.h")):
        add(path)
    return "\n".join(texts)


class Spec:
    def __init__(self, text):
        self.text = text
        self.numbers = {}  # enumerators
        self.structs = {}  # name in C -> name in Python
        self.scalars = dict(SCALARS)
        for name, known in re.findall(r"typedef (\w+) (\w+);", text):
            if name in SCALARS:
                self.scalars[known] = SCALARS[name]
        self.callbacks = set(re.findall(r"typedef \w+ \(\*(\w+)\)", text))
        for body in re.findall(r"enum \{(.*?)\}", text, re.S):
            for name, value in re.findall(r"(\w+) = ([^,]+)", body):
                number, shift = re.fullmatch(r"(-?\d+)(?: << (\d+))?", value.strip()).groups()
                self.numbers[name] = int(number) << int(shift or 0)

    def type_of(self, text):
        """Returns the ctypes type of a C type, such as "const attnc_tensor*"."""
        base, stars = re.fullmatch(r"(\w+)(\**)", re.sub(r"\bconst\b|\s", "", text)).groups()
        if base in self.callbacks or (base in ("void", "attnc_stream") and len(stars) < 2):
            return "c_void_p"
        if base == "char":
            return "c_char_p" if stars == "*" else "POINTER(c_char_p)"
        if base in self.scalars:  # arrays are given by their addresses, which may be those of a GPU
            return "c_void_p" if stars else self.scalars[base]
        inner = self.structs.get(base)
        if inner is None:  # an opaque object, or a pointer to one
            return "c_void_p" if stars == "*" else "POINTER(c_void_p)"
        return "POINTER(" * len(stars) + inner + ")" * len(stars)

    def fields_of(self, body):
        for declaration in filter(None, (" ".join(part.split()) for part in body.split(";"))):
            base, names = re.fullmatch(r"(.*?[ *])(\w+(?:\[\w+\])?(?:, \w+(?:\[\w+\])?)*)", declaration).groups()
            for name, count in re.findall(r"(\w+)(?:\[(\w+)\])?", names):
                kind = self.type_of(base)
                yield name, f"{kind} * {self.numbers[count]}" if count else kind

    def options_of(self, fields):
        """Returns the members of the class of options in Python. The device says its architecture, doors say what is later,
        and no option has pointers. An enumerator is given by the end of its name."""
        for field, kind in fields:
            names = [name.split("_", 2)[2].lower() for name in self.numbers if name.startswith(f"ATTNC_{field.upper()}_")]
            if field not in ("arch", "backward_later") and kind in GIVEN:
                yield field, "typing.Literal[" + ", ".join(f'"{name}"' for name in names) + "]" if names else GIVEN[kind]

    def write(self):
        lines = [INTRO]
        for name, number in self.numbers.items():
            lines.append(f"{name.removeprefix('ATTNC_')} = {number}")
        for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", self.text, re.S):
            fields = list(self.fields_of(body))
            made = self.structs[name] = "".join(word.capitalize() for word in name.removeprefix("attnc_").split("_"))
            parent = "Sized" if fields[0][0] == "struct_size" else "Structure"
            lines += ["", "", f"class {made}({parent}):", "    _fields_ = ["]
            lines += [f'        ("{field}", {kind}),' for field, kind in fields] + ["    ]"]
            if made == "PrepareOptions":
                lines += ["", "", "class Options(typing.TypedDict, total=False):"]
                lines += ['    """What callers in Python may ask of kernels, by the names of PrepareOptions."""', ""]
                lines += [f"    {field}: {kind}" for field, kind in self.options_of(fields)]
        lines += ["", "", "# Options are below these.", f"LIMITS = {dict((name, int(limit)) for _, name, limit in CHOICES)}"]
        lines += ["", "# Functions of f32 in the IR.", "FUNCTIONS_OF_IR = ("]
        lines += [f"    {name}," for name in rows_of("src/ir/ops.def", rf"FUNCTION\(\w+, +{TEXT}")] + [")"]
        lines += ["", "# id: (message, hint)", "WORDS = {"]
        for table in ("diagnostics", "warnings"):
            rows = rows_of(f"dsl/{table}.def", rf"\w+\(\w+, {TEXT}, {TEXT}, {TEXT}")
            lines += [f"    {id}: ({message}, {hint})," for id, message, hint in rows]
        lines += ["}", "", "# name: (result, arguments)", "FUNCTIONS = {"]
        for result, name, arguments in re.findall(r"ATTNC_API ([\w *]+?)(\w+)\(([^)]*)\);", self.text):
            listed = [] if arguments.strip() == "void" else arguments.split(",")
            kinds = [self.type_of(re.fullmatch(r"(.*?)(\w+)", " ".join(one.split())).group(1)) for one in listed]
            returned = "None" if result.strip() == "void" else self.type_of(result)
            lines.append(f'    "{name}": ({returned}, ({", ".join(kinds)}{"," if len(kinds) == 1 else ""})),')
        return "\n".join([*lines, "}", ""])


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).write_text(Spec(read_headers()).write())
