"""Writes the reference of the command, a page a subcommand, from `attnc --help-json`."""

import json
import re
import subprocess

import text


def code_blocks(footer):
    """A footer as Markdown: what is indented is a shell's line or a table, and stays as it is."""
    out = []
    for block in re.split(r"\n\s*\n", footer.strip("\n")):
        lines = block.split("\n")
        head = [line for line in lines if not line.startswith("  ")]
        body = [line for line in lines if line.startswith("  ")]
        if head and head[0].rstrip(":") in ("Examples", "Example"):
            out.append("## Examples")
            head = head[1:]
            language = "bash"
        else:
            language = "text"
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
            if not head and out and out[-1].startswith("```text\n"):  # one text with empty lines
                out[-1] = out[-1].removesuffix("\n```") + f"\n\n{code}\n```"
            else:
                out.append(f"```{language}\n{code}\n```")
        if after:
            out.append(paragraph(" ".join(after)))
    return "\n\n".join(out)


def paragraph(words):
    """Help text as Markdown: options and names in code."""
    pieces = re.split(r"(`[^`]*`|\"[^\"]*\")", re.sub(r"\s+", " ", words.strip()))
    for index in range(0, len(pieces), 2):
        pieces[index] = re.sub(r"(?<![\w-])(--?[A-Za-z][\w-]*)", r"`\1`", text.escaped(pieces[index]))
    for index in range(1, len(pieces), 2):
        if pieces[index][0] == '"':
            pieces[index] = f"`{pieces[index]}`"
    return "".join(pieces)


def slug(name):
    return name.lstrip("-").lower() if name.startswith("--") else "short-" + name.lstrip("-")


def option(one):
    names = list(one["names"])
    value = one["value"].split(":NONNEGATIVE")[0].split(":POSITIVE")[0]
    title = ", ".join(f"`{name}`" for name in names)
    if value:
        title += f" `{value}`"
    if one["repeats"] and not one["positional"]:
        title += " …"
    notes = []
    if one["required"]:
        notes.append("Required.")
    if one["choices"] and not all(choice in one["help"] for choice in one["choices"]):
        notes.append("One of " + ", ".join(f"`{choice}`" for choice in one["choices"]) + ".")
    if one["default"] and "default" not in one["help"].lower():
        notes.append(f"Default: `{one['default']}`.")
    help_text = paragraph(one["help"])
    if help_text and notes and help_text[-1] not in ".!?":
        help_text += "."
    return f"{title}\n:   {' '.join([help_text, *notes]).strip()}"


def options(command, level):
    out = []
    groups = {}
    for one in command["options"]:
        if one["names"] in (["-h", "--help"], ["--help"]):
            continue
        group = "Arguments" if one["positional"] else one["group"]
        groups.setdefault(group, []).append(one)
    for group in sorted(groups, key=lambda name: name != "Arguments"):
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
    return blocks if not blocks or blocks[-1] in ".:`?!)" else blocks + "."


def page(command):
    out = [f"# attnc {command['name']}", description(command), f"```text\n{usage(command, command['name'])}\n```"]
    out += options(command, 2)
    for inner in command["commands"]:
        path = f"{command['name']} {inner['name']}"
        out += [f"## attnc {path}", description(inner), f"```text\n{usage(inner, path)}\n```"]
        out += options(inner, 3)
        if inner["footer"]:
            out.append(code_blocks(inner["footer"]).replace("## Examples", "### Examples"))
    if command["footer"]:
        out.append(code_blocks(command["footer"]))
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
    out += options(app, 2)
    out.append(code_blocks(app["footer"]))
    (folder / "index.md").write_text("\n\n".join(out) + "\n")
    return [command["name"] for command in app["commands"]]
