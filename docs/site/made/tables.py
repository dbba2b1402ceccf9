"""Writes the pages that tables of the sources become: environment variables, diagnostics, operations, passes."""

import ast
import pathlib
import re

import text

ROOT = pathlib.Path(__file__).resolve().parents[3]


def split_arguments(body):
    """Splits at commas outside of brackets and strings."""
    parts, depth, quoted, current = [], 0, False, ""
    for index, char in enumerate(body):
        if char == '"' and (not index or body[index - 1] != "\\"):
            quoted = not quoted
        if not quoted:
            depth += char in "([{"
            depth -= char in ")]}"
            if char == "," and depth == 0:
                parts.append(current.strip())
                current = ""
                continue
        current += char
    return [*parts, current.strip()]


def rows(path, macros):
    """(section, macro, arguments) of the rows of a table; a comment before rows is their section."""
    section = ""
    body = (ROOT / path).read_text()
    body = re.sub(r"^#.*(\\\n.*)*$", "", body, flags=re.M)
    body = re.sub(r"\n\s+(?=\()", " ", body)  # a row on two lines
    lines = iter(body.splitlines())
    for line in lines:
        if line.startswith("// ") and len(line) < 60:
            section = line[3:].rstrip(".")
        match = re.match(r"(\w+)\((.*)$", line)
        if not match or match.group(1) not in macros:
            continue
        whole = match.group(2)
        while whole.count("(") >= whole.count(")"):
            whole += " " + next(lines).strip()
        whole = whole[: whole.rindex(")")]
        # The end of the row, before a comment behind it.
        depth = 0
        for index, char in enumerate(match.group(2)):
            depth += char == "("
            depth -= char == ")"
            if depth < 0:
                whole = match.group(2)[:index]
                break
        yield section, match.group(1), split_arguments(whole)


def literal(argument):
    return ast.literal_eval(argument) if argument.startswith('"') else argument


def first_comment(path):
    lines = []
    for line in (ROOT / path).read_text().splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:].removeprefix(" "))
    return "\n".join(lines)


def environment():
    out = ["# Environment variables", "attnc reads these variables. An empty variable counts as unset. The library, "
           "the command and the Python package read the same ones.", "| variable | what it does |\n|---|---|"]
    for _, _, (_, name, what) in rows("src/jit/env.def", {"ATTNC_ENV"}):
        out[-1] += f"\n| `{literal(name)}` | {text.Names().inline(capital(literal(what)))}. |"
    return out


def holes(message):
    """A message with its holes shown as dots."""
    return re.sub(r"\{\d\}", "…", message)


def messages():
    out = ["# Diagnostics and warnings", "attnc says these things about the text of a mod. Each has an id, which "
           "`attnc check --json` and `Diagnostic::id` also give. The dots stand for a part of your text.",
           "## Warnings", "A warning is about legal text that is probably not what its author meant. "
           "`--no-warn ID` leaves one kind out, and `--werror` makes all of them errors."]

    def entry(arguments):
        identifier, message, hint = (literal(each) for each in arguments[1:4])
        hint = holes(hint)
        item = f"`{identifier}`{{ #{identifier} }}\n:   {sentence(capital(holes(message)))}"
        if hint and hint != "…":
            item += f"\n\n    *Repair:* {sentence(hint)}"
        return item

    for _, _, arguments in rows("dsl/warnings.def", {"WARN"}):
        out.append(entry(arguments))
    out += ["## Errors", "An error means that the mod is rejected."]
    last = None
    for section, _, arguments in rows("dsl/diagnostics.def", {"DIAG"}):
        if section != last:
            out.append(f"### {section}")
            last = section
        out.append(entry(arguments))
    return out


def capital(words):
    return words[:1].upper() + words[1:]


def sentence(message):
    pieces = re.split(r"(`[^`]*`)", message)
    words = "".join(piece if index % 2 else text.escaped(piece) for index, piece in enumerate(pieces))
    return words if words.endswith("…") else words + "."


def code(value):
    value = re.sub(r"\s+", " ", value)
    for index, name in enumerate("abc"):
        value = value.replace(f"{{{index}}}", name)
    return text.cell(value)


def operations():
    """The operations of the IR."""
    out = ["# Operations", "A mod becomes a program of these operations. `attnc emit --stage ir` prints it. The names "
           "are those of the IR's text. *Cost* is the number of instructions, roughly; where there are two numbers, "
           "the first is that of integers. The operands are a, b and c, the result is y, and g is its gradient.",
           "| operation | operands | types | CUDA | gradient | cost |\n|---|---|---|---|---|---|"]
    for _, macro, arguments in rows("src/ir/ops.def", {"OP", "FUNCTION", "LEAF"}):
        if macro == "LEAF":
            name, arity, rule, cuda, derivative, cost = literal(arguments[1]), "0", "Leaf", "", "None", "0"
        elif macro == "FUNCTION":
            _, name, arity, cuda, _, derivative, cost = arguments
            name, cuda, rule = literal(name), literal(cuda), "Float"
        else:
            _, name, arity, rule, cuda, _, derivative, _, cost = arguments
            name, cuda = literal(name), literal(cuda)
        if arity == "-1":
            arity = "rank"
        if derivative.startswith("(") and derivative.endswith(")"):
            derivative = derivative[1:-1]
        cost = re.sub(r"Cost\((\S+), (\S+)\)", r"\1; \2", cost)
        derivative = "" if derivative == "None" else code(derivative)
        out[-1] += f"\n| `{name}` | {arity} | {rule} | {code(cuda)} | {derivative} | {cost} |"
    about = first_comment("src/ir/ops.def")
    rules = re.findall(r"^ {11}(\w+) +(.*)$", about, re.M)
    out += ["## Types", "\n".join(["| rule | meaning |\n|---|---|"] + [
        f"| {name} | {text.escaped(what[0].upper() + what[1:])} |" for name, what in rules if name[0].isupper()])]
    meaning = about.partition("Meaning. ")[2]
    if meaning:
        out += ["## Meaning", text.Names().prose(meaning)]
    out += ["## Passes", "Passes simplify the program, and derive what kernels need. "
            "The [language reference](language/reference.md) says what a mod means; no pass changes it.", "| pass | what it does |\n|---|---|"]
    for _, _, (_, name, what) in rows("src/passes/passes.def", {"PASS"}):
        out[-1] += f"\n| `{literal(name)}` | {text.Names().inline(literal(what))} |"
    return out


def write(pages):
    for name, page in (("environment", environment()), ("diagnostics", messages()), ("operations", operations())):
        (pages / f"{name}.md").write_text("\n\n".join(page) + "\n")
