"""Writes the language reference from dsl/SPEC.md: code gets its colours, and references to sections become links."""

import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]


def language_of(code):
    try:
        ast.parse(code)
        return "python"
    except SyntaxError:
        return "text"


def slug(heading):
    """The anchor that Python-Markdown makes of a heading."""
    words = re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", heading).lower()).strip()
    return re.sub(r"[-\s]+", "-", words)


def fenced(text):
    """Indented blocks behind an empty line as fenced ones."""
    out, lines, index = [], text.split("\n"), 0
    while index < len(lines):
        is_block = lines[index].startswith("    ") and (not out or not out[-1].strip())
        if not is_block:
            out.append(lines[index])
            index += 1
            continue
        block = []
        while index < len(lines) and (lines[index].startswith("    ") or not lines[index].strip()):
            block.append(lines[index][4:])
            index += 1
        while not block[-1].strip():
            block.pop()
        code = "\n".join(block)
        out += [f"```{language_of(code)}", code, "```", ""]
    return "\n".join(out)


def write(pages):
    text = (ROOT / "dsl/SPEC.md").read_text()
    anchors = {number: slug(f"{number}. {title}") for number, title in re.findall(r"^## (\d+)\. (.*)$", text, re.M)}
    text = fenced(text)

    def link(match):
        return f"[§{match.group(1)}](#{anchors[match.group(1)]})" if match.group(1) in anchors else match.group(0)

    parts = re.split(r"(^```.*?^```|`[^`\n]*`)", text, flags=re.M | re.S)
    text = "".join(part if index % 2 else re.sub(r"§(\d+)", link, part) for index, part in enumerate(parts))
    (pages / "language").mkdir(exist_ok=True)
    (pages / "language/reference.md").write_text(text)
