"""Writes the reference of the command, a page a subcommand, from `attnc --help-json`."""

import json
import re
import subprocess

import text


def code_blocks(words):
    """Help as Markdown: what is indented is code or a table, and stays as it is."""
    out = []
    for block in re.split(r"\n\s*\n", words.strip("\n")):
        lines = block.split("\n")
        head = [line for line in lines if not line.startswith("  ")]
        body = [line for line in lines if line.startswith("  ")]
        language = "text" if re.match(r" *(-|\d)", "".join(body)) else "python"
        before, after = head, []
        if body and head:
            split = lines.index(body[0])
            before = [line for line in lines[:split] if line in head]
            after = [line for line in lines[split:] if not line.startswith("  ")]
        if before:
            out.append(paragraph(" ".join(before)))
        if body:
            indent = min(len(line) - len(line.lstrip()) for line in body)
            code = "\n".join(line[indent:] for line in body)
            if not head and out and out[-1].startswith(f"```{language}\n"):  # one text with empty lines
                out[-1] = out[-1].removesuffix("\n```") + f"\n\n{code}\n```"
            else:
                out.append(f"```{language}\n{code}\n```")
        if after:
            out.append(paragraph(" ".join(after)))
    return "\n\n".join(out)


def footer_of(footer, level):
    """A footer as Markdown: the examples, and a list of what else it says. Each of its points ends a line."""
    notes, _, examples = re.sub(r"\n? *Examples:\n", "\0", footer).partition("\0")
    lines = "\n".join(line.removeprefix("  ") for line in examples.strip("\n").split("\n"))
    examples, _, more = lines.partition("\n\n")
    examples = "\n".join(map(text.command_lines, examples.split("\n")))
    out = [f"{'#' * level} Examples\n\n```bash\n{examples}\n```"] if examples else []
    points = [paragraph(point) for point in re.split(r"(?<=\.)\n", notes.strip("\n"))] if notes.strip() else []
    if points:
        out.append(f"{'#' * level} Notes")
        out.append(points[0] if len(points) == 1 else "\n".join(f"* {point}" for point in points))
    return out + ([code_blocks(re.sub(r"(?m)^(?=\d )", "  ", more))] if more else [])


def paragraph(words):
    """Help text as Markdown: options, names, shapes and file names in code."""
    option = r"(?<![\w-])--?[A-Za-z][\w-]*(?:[ =][A-Z][\w=]*)?|(?<= )-(?=[ :,.]|$)|^-(?=:)"
    name = r"(?:\$|~/)[\w./]*\w|\*\.\w+|\b[A-Z_]{3,}=[\w.:]+|\bd_<capture>"
    pieces = re.split(rf"(`[^`]*`|\"[^\"]*\"|{option}|{name})", re.sub(r"\s+", " ", words.strip()))
    for index in range(0, len(pieces), 2):
        pieces[index] = text.Names().inline(pieces[index])
    for index in range(1, len(pieces), 2):
        if pieces[index][0] != "`":
            pieces[index] = f"`{pieces[index]}`"
    return "".join(pieces)


def slug(name):
    return name.lstrip("-").lower() if name.startswith("--") else "short-" + name.lstrip("-")


def option(one):
    value = re.sub(r":(NONNEGATIVE|POSITIVE|INT in .*)", "", one["value"])
    title = f"`{value}`" if one["positional"] else ", ".join(f"`{name}`" for name in one["names"])
    if value and not one["positional"]:
        title += f" `{value}`"
    if one["repeats"] and not one["positional"]:
        title += " …"
    notes = []
    if one["required"]:
        notes.append("Required.")
    if one["choices"] and not all(choice in one["help"] for choice in one["choices"]):
        notes.append("One of " + ", ".join(f"`{choice}`" for choice in one["choices"]) + ".")
    if one["default"] and "default" not in one["help"].lower():
        notes.append(f"Default: `{one['default'].strip('[]')}`.")
    help_text = paragraph(one["help"])
    if help_text and help_text[-1] not in ".!?":
        help_text += "."
    return f"{title}\n:   {' '.join([help_text, *notes]).strip()}"


def options(command, level, of_all=()):
    """The options by group. `of_all`: those of the command around this one."""
    out = []
    groups = {}
    for one in command["options"]:
        if one["names"] in (["-h", "--help"], ["--help"], ["--help-all"]) or one in of_all:
            continue
        group = "Arguments" if one["positional"] else one["group"]
        groups.setdefault(group, []).append(one)
    for group in sorted(groups, key=lambda name: (name != "Arguments", name == "Other")):
        out.append(f"{'#' * level} {group[0].upper() + group[1:]}")
        out += [option(one) for one in groups[group]]
    return out


def usage(command, path):
    words = [f"attnc {path}".strip()]
    if any(not one["positional"] for one in command["options"]):
        words.append("[OPTIONS]")
    for one in command["options"]:
        if one["positional"]:
            name = one["value"] or one["names"][0].upper()
            words.append(name if one["required"] else f"[{name}]")
    if command["commands"]:
        words.append("COMMAND")
    return " ".join(words)


def description(command):
    blocks = code_blocks(command["description"])
    return blocks if not blocks or blocks.endswith((".", ":", "```")) else blocks + "."


def page(command):
    out = [f"# attnc {command['name']}", description(command), f"```text\n{usage(command, command['name'])}\n```"]
    out += footer_of(command["footer"], 2) + options(command, 2)
    for inner in command["commands"]:
        path = f"{command['name']} {inner['name']}"
        out += [f"## attnc {path}", description(inner), f"```text\n{usage(inner, path)}\n```"]
        if inner["footer"] != command["footer"]:
            out += footer_of(inner["footer"], 3)
        out += options(inner, 3, command["options"])
    return "\n\n".join(out) + "\n"


def write(pages, attnc):
    """Returns the names of the pages, in the order of the help."""
    app = json.loads(subprocess.run([attnc, "--help-json"], check=True, capture_output=True, text=True).stdout)
    folder = pages / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    out = ["# The command `attnc`", description(app)]
    groups = {}
    for command in app["commands"]:
        (folder / f"{command['name']}.md").write_text(page(command))
        first = command["description"].split("\n")[0].rstrip(".")
        row = f"| [`attnc {command['name']}`]({command['name']}.md) | {paragraph(first)} |"
        groups.setdefault(command["group"], []).append(row)
    for group, rows in groups.items():
        out += [f"## {group}"] if len(groups) > 1 else []
        out.append("\n".join(["| command | what it does |\n|---|---|", *rows]))
    out += footer_of(app["footer"], 2) + options(app, 2)
    (folder / "attnc.md").write_text("\n\n".join(out) + "\n")
    return [command["name"] for command in app["commands"]]
