"""Writes the gallery: a page with all mods of dsl/mods as pictures, and a page for each.

Inputs: the mods, dsl/mods/README.md for order, sections and the commands that draw them, the command attnc, and the
speeds that bench/gallery_speed.py prints.
"""

import ast
import html
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import text

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODS = ROOT / "dsl/mods"
TAGS = {"score_mod": "score", "mask_mod": "mask", "prob_mod": "weight", "sink_mod": "sink"}


def formula(source):
    """A formula of a docstring in Unicode, as HTML."""
    out = html.escape(source, quote=False)
    out = re.sub(r"`([^`]*)`", r"\1", out)
    name = r"[A-Za-z_]\w*(?:<sub>.*?</sub>)?|\d+"
    while re.search(r"\w\[[^\[\]]*\]", out):  # inner indices first
        out = re.sub(r"(\w)\[([^\[\]]*)\]", r"\1<sub>\2</sub>", out)
    out = re.sub(rf"({name}) // ({name})", r"⌊\1 / \2⌋", out)
    for old, new in ((" % ", " mod "), ("&lt;=", "≤"), ("&gt;=", "≥"), (" == ", " = "), ("!=", "≠"), (" * ", " · "),
                     (", and ", " ∧ "), (" and ", " ∧ "), (" or ", " ∨ "), (" in ", " ∈ "), (" - ", " − "), (" . ", " · ")):
        out = out.replace(old, new)
    return re.sub(r"(?<![<&/\w])([A-Za-z_]\w*)(?![\w;(>])", r"<i>\1</i>", out).replace("<i>mod</i>", "mod")


def is_formula(paragraph):
    is_expression = re.match(r"(kv|q|qy|score|prob|exp|\d+|document|rank|factor)\b", paragraph)
    return is_expression and re.search(r"[<=+*-]", paragraph)


def linked(line, names=()):
    """A line with its addresses as links that say what they lead to, and names of the mod in code."""

    def link(match):
        address = match.group(0).rstrip(".")
        tail = match.group(0)[len(address) :]
        paper = re.search(r"arxiv\.org/abs/([\d.]+)$", address)
        name = f"arXiv:{paper.group(1)}" if paper else re.sub("https?://", "", address)
        return f"[{name}]({address}){tail}"

    known = "".join(rf"|(?<!`)\b{name}\b" for name in names if name.isupper() or "_" in name)
    pieces = re.split(rf"(`[^`]*`|https?://[^\s,;)]+{known})", line)
    return "".join(text.escaped(piece) if index % 2 == 0 else piece if piece[0] == "`" else
                   link(re.match(".*", piece)) if piece[:4] == "http" else f"`{piece}`"
                   for index, piece in enumerate(pieces))


def described(docstring, names):
    """A docstring as Markdown."""
    out = []
    for index, block in enumerate(docstring.split("\n\n")):
        if block.startswith("    "):
            lines = [formula(line.strip()) for line in block.split("\n")]
            out.append('<div class="formula">' + "<br>".join(lines) + "</div>")
            continue
        paragraph = " ".join(line.strip() for line in block.split("\n"))
        if index and is_formula(paragraph):
            parts = re.match(r"(.*?)(?:(\. |, with |, between |, causal)(.*))?$", paragraph).groups()
            out.append(f'<div class="formula">{formula(parts[0])}</div>')
            if parts[1]:
                rest = (parts[1].lstrip(",. ") + parts[2]) if parts[1] != ". " else parts[2]
                out.append(linked(rest[0].upper() + rest[1:] + ("" if rest.endswith(".") else "."), names))
        else:
            out.append(linked(paragraph, names))
    return out


class Mod:
    def __init__(self, name, section, drawings):
        self.name, self.section = name, section
        self.drawings = drawings  # (command, file of the picture, what it shows)
        self.source = (MODS / f"{name}.py").read_text()
        self.tree = ast.parse(self.source)
        self.docstring = ast.get_docstring(self.tree)
        self.body = self.source.split('"""', 2)[2].strip("\n") + "\n"
        self.papers = re.findall(r"https?://[^\s,;)]+[^\s,;).]", self.docstring)
        functions = {node.name for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)}
        functions |= {t.id for node in self.tree.body if isinstance(node, ast.Assign) for t in node.targets
                      if isinstance(t, ast.Name)}
        self.functions = [kind for kind in TAGS if kind in functions]
        lines = self.source.split("\n")
        self.captures, self.constants = [], []
        for node in self.tree.body:
            if isinstance(node, ast.AnnAssign):
                note = lines[node.end_lineno - 1][node.end_col_offset:].partition("#")[2].strip()
                self.captures.append((node.target.id, ast.unparse(node.annotation), note))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper():
                note = lines[node.end_lineno - 1][node.end_col_offset:].partition("#")[2].strip()
                self.constants.append((node.targets[0].id, ast.unparse(node.value), note))

    @property
    def names(self):
        return [name for name, _, _ in self.captures + self.constants]

    @property
    def title(self):
        """The first words of the docstring: what the mod is called."""
        title = re.split(r"[:(,.]", self.docstring)[0].strip().removeprefix("The ").replace("\n", " ").replace("`", "")
        return title[0].upper() + title[1:]

    @property
    def tags(self):
        tags = [TAGS[kind] for kind in self.functions]
        if any("[" in kind for _, kind, _ in self.captures):
            tags.append("tensor")
        if any("[" not in kind for _, kind, _ in self.captures):
            tags.append("number")
        if "grid(" in self.body:
            tags.append("grid")
        return tags

    @property
    def thumbnail(self):
        """The file of the picture that stands for the mod, or None."""
        if not self.drawings:
            return None
        return self.drawings[-1 if self.section.startswith("Scores") else 0][1]


def drawing_of(name, command):
    """A command, the file of the picture that it draws, and what that shows."""
    if "--scores" in command:
        return command, f"{name}_scores.svg", f"what {name}.py makes of scores"
    return command, f"{name}.svg", f"{'what queries see in' if '--query' in command else 'the mask of'} {name}.py"


def picture(attnc, command, folder):
    """The SVG that a command draws. `folder` has the captures, which are written when a command is the first to read
    them."""
    arguments = shlex.split(command)[1:]
    for index, name in enumerate(arguments):
        if name.endswith(".safetensors"):
            arguments[index] = path = folder / name
            of = [] if name == "captures.safetensors" else [path.stem]
            if not path.exists():
                script = [sys.executable, MODS / "pictures/captures.py", *of]
                path.write_bytes(subprocess.run(script, check=True, capture_output=True).stdout)
    drawn = subprocess.run([attnc, *arguments, "-o", "-"], cwd=MODS, capture_output=True, text=True)
    if drawn.returncode:
        sys.exit(f"dsl/mods/README.md: {command}: {drawn.stderr}")
    return drawn.stdout


def draw(attnc, mods, folder):
    """Draws the pictures and the thumbnails of all mods."""
    for kind in ("pictures", "thumbnails"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as captures:
        for command, file, _ in (drawing for mod in mods for drawing in mod.drawings):
            svg = picture(attnc, command, pathlib.Path(captures))
            (folder / "pictures" / file).write_text(svg)
            (folder / "thumbnails" / file).write_text(cropped(svg))


def read_mods():
    """The mods in the order of README; others behind them."""
    readme = (MODS / "README.md").read_text()
    mods, section, seen = [], "", set()
    for part in re.split(r"(?m)^(?=##+ )", readme):
        head = part.split("\n")[0]
        if head.startswith("## "):
            section = head[3:]
        match = re.match(r"### \[(\w+)\]", head)
        if match:
            commands = re.findall(r"^    (attnc mask .*)$", part, re.M)
            mods.append(Mod(match.group(1), section, [drawing_of(match.group(1), command) for command in commands]))
            seen.add(match.group(1))
    mods += [Mod(path.stem, "Others", []) for path in sorted(MODS.glob("*.py")) if path.stem not in seen]
    return mods


def read_speeds():
    script = ROOT / "bench/gallery_speed.py"
    if not script.exists():
        return {}
    return json.loads(subprocess.run([sys.executable, script], check=True, capture_output=True, text=True).stdout)


def number(value):
    return "" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def speed_table(rows):
    out = ["## Speed", "| case | attnc | FlexAttention | unit |\n|---|---:|---:|---|"]
    for row in rows:
        figures = f"**{number(row['attnc'])}** | {number(row.get('flex')) or '–'}"
        out[-1] += f"\n| {text.escaped(row['case'])} | {figures} | {row['unit']} |"
    where = sorted({f"{row['gpu']}, {row['date']}" for row in rows if row.get("gpu") and row.get("date")})
    sources = {source: None for row in rows for source in
               ([row["source"]] if isinstance(row.get("source"), str) else row.get("source") or [])}
    if where:
        out.append(f"Measured on {'; '.join(where)}.")
    if sources:
        out.append("The figures are in " + " and ".join(f"`{source}`" for source in sources) + ".")
    return out


def speed_line(rows):
    """The speed as one line below a picture: the first case that has a peer."""
    row = next((row for row in rows if row.get("flex")), None)
    if row is None:
        row = next(iter(rows), None)
        return f'<span class="speed">{number(row["attnc"])} {row["unit"]}</span>' if row else ""
    ratio = row["attnc"] / row["flex"]
    if row["unit"] in ("ms", "us", "µs", "s"):
        ratio = 1 / ratio
    return (f'<span class="speed" title="{number(row["attnc"])} against {number(row["flex"])} {row["unit"]}">'
            f'<b>{ratio:.1f}×</b> FlexAttention<br><small>{html.escape(row["case"])}</small></span>')


def cropped(svg):
    """A picture without what is around its first panel: a thumbnail has no room for words. As it is if none is found."""
    found = re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', svg)
    rects = [tuple(map(int, each)) for each in found]
    rects = [rect for rect in rects if rect[2] >= 100]  # frames, and lines of the lattice
    if not rects:
        return svg
    x, _, width, _ = min(rects)
    first = [rect for rect in rects if rect[0] == x]
    top, bottom = min(rect[1] for rect in first), max(rect[1] + rect[3] for rect in first)
    box = f'viewBox="{x} {top} {width} {bottom - top}"'
    return re.sub(r'<svg ([^>]*?)viewBox="[^"]*" width="[^"]*" height="[^"]*"', rf"<svg \1{box}", svg, count=1)


def breakable(name):
    """A name that a narrow card breaks behind an underscore, not within a word."""
    return name.replace("_", "_<wbr>")


def card(mod, speeds):
    if mod.thumbnail:
        shown = f'<img class="thumbnail" src="thumbnails/{mod.thumbnail}" alt="" loading="lazy">'
    else:
        line = next((line.strip() for line in reversed(mod.body.split("\n")) if line.strip().startswith("return")
                     and "score" in line), "")
        line = line or next(line.strip() for line in mod.body.split("\n") if line.strip().startswith("return"))
        shown = f'<span class="thumbnail words"><code>{html.escape(line.removeprefix("return "))}</code></span>'
    tags = "".join(f'<span class="tag">{tag}</span>' for tag in mod.tags)
    return (f'<a class="card" href="{mod.name}.html">{shown}<span class="name">{breakable(mod.name)}</span>'
            f'<span class="what">{html.escape(mod.title)}</span>{speed_line(speeds.get(mod.name, []))}'
            f'<span class="tags">{tags}</span></a>')


def table(second, rows):
    """Rows of (name, type or value, meaning); without the last column if it is empty."""
    notes = any(note for _, _, note in rows)
    out = [f"| name | {second} |{' meaning |' if notes else ''}", "|---|---|" + ("---|" if notes else "")]
    names = [name for name, _, _ in rows]
    out += [f"| `{name}` | `{value}` |{f' {linked(note, names)} |' if notes else ''}" for name, value, note in rows]
    return "\n".join(out)


def page(mod, speeds, pictures):
    tags = "".join(f'<span class="tag">{tag}</span>' for tag in mod.tags)
    out = [f"# {mod.name}", f'<p class="tags">{tags}</p>', *described(mod.docstring, mod.names)]
    out += [f'```python title="{mod.name}.py"\n{mod.body}```']
    if mod.drawings:
        out.append("## Picture" if len(mod.drawings) == 1 else "## Pictures")
    for command, file, alternative in mod.drawings:
        if "--scores" in command:
            out.append("What `score_mod` makes of a score, by place, or as a curve." if "score_mod" in mod.functions else
                       "What `prob_mod` makes of a weight of 1, by place.")
        elif "--query" in command:
            out.append("The keys that some queries see.")
        else:
            out.append("Full blocks need no mask. Partial blocks ask it for each score. Blocks without colour are skipped.")
        width, height = re.search(r'width="(\d+)" height="(\d+)"', (pictures / file).read_text()).groups()
        kind = "picture wide" if int(width) > 1.3 * int(height) else "picture"
        out.append(f'<p class="{kind}"><img src="pictures/{file}" alt="{alternative}" loading="lazy"></p>')
        out.append(f"```bash\n{text.command_lines(command)}\n```")
    every = " ".join(command for command, _, _ in mod.drawings)
    for name in sorted(set(re.findall(r"--in (\w+)\.safetensors", every))):
        argument = "" if name == "captures" else f" {name}"
        out.append(f"This writes `{name}.safetensors`, in `dsl/mods`:")
        out.append(f"```bash\npython3 pictures/captures.py{argument} > {name}.safetensors\n```")
    if mod.captures:
        out += ["## Captures", table("type", mod.captures)]
    if mod.constants:
        out += ["## Constants", "`-D NAME=VALUE` overrides them.", table("value", mod.constants)]
    if speeds.get(mod.name):
        out += speed_table(speeds[mod.name])
    if mod.papers:
        out += ["## Papers", "\n".join(f"* {linked(address)}" for address in dict.fromkeys(mod.papers))]
    return "\n\n".join(out) + "\n"


def write(pages, attnc):
    """Returns the names of the mods in order."""
    mods, speeds = read_mods(), read_speeds()
    folder = pages / "gallery"
    draw(attnc, mods, folder)
    out = ["---\nhide:\n  - toc\n---", "# Gallery",
           f"These {len(mods)} mods are in `dsl/mods`, with their source. FlexAttention also takes each, except dropout. Use one as it is, "
           "with its constants and captures, or start from it."]
    section = None
    for mod in mods:
        (folder / f"{mod.name}.md").write_text(page(mod, speeds, folder / "pictures"))
        if mod.section != section:
            section = mod.section
            cards = "\n".join(card(each, speeds) for each in mods if each.section == section)
            out += [f"## {section}", f'<div class="cards">\n{cards}\n</div>']
    (folder / "index.md").write_text("\n\n".join(out) + "\n")
    return [mod.name for mod in mods]
