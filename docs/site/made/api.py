"""Writes the reference of the C++ and of the C interface: a page a header."""

import pathlib
import re

import headers
import text

UNITS = {"struct": "struct", "class": "class", "enum": "enum", "alias": "type", "macro": "macro",
         "constant": "constant", "function": "function"}


def anchor(entity):
    return entity.full_name.replace("::", ".").replace("<", "-").replace(">", "").replace(", ", "-")


def page_of(header):
    part = "c" if header.path.startswith("attnc/c/") or header.path == "attnc/c.h" else "cpp"
    return f"api/{part}/{pathlib.PurePath(header.path).stem}.md"


def place_all(every):
    names = text.Names()
    for header in every:
        page = page_of(header)
        names.headers[header.path] = page

        def place(entities, page=page):
            for entity in entities:
                where = f"{page}#{anchor(entity)}"
                for name in entity.name.split(", "):
                    full = f"{entity.scope}::{name}" if entity.scope else name
                    names.places.setdefault(full, where)
                place(entity.members)

        place(header.entities)
    # What attnc.h and c.h say begins the reference of all headers.
    names.headers["attnc/attnc.h"] = "api/cpp/attnc.md"
    names.headers["attnc/c.h"] = "api/c/c.md"
    names.headers["dsl/SPEC.md"] = "language/reference.md"
    names.headers["dsl/diagnostics.def"] = names.headers["dsl/warnings.def"] = "diagnostics.md"
    return names


def laid_out(signature):
    """A declaration as it fits a page: one that is longer has a line for each parameter."""
    head, line = re.match(r"((?:template <.*?>\s)?)(.*)", re.sub(r"\s+", " ", signature)).groups()
    head = f"{head.strip()}\n".lstrip()
    if len(line) <= text.COLUMNS:
        return head + line
    last = max(line.rfind(")"), line.rfind("}"))
    depth, parts, end = 0, [], last
    for index in range(last, -1, -1):  # from the end: a callback's name is in brackets before its parameters
        depth += (line[index] in ")}>") - (line[index] in "({<")
        if not depth or line[index] == "," and depth == 1:
            parts.insert(0, line[index + 1 : end].strip())
            end = index
            if not depth:
                break
    inner = ",\n".join(f"    {part}" for part in parts)
    return f"{head}{line[: end + 1]}\n{inner}{line[last:]}"


class Writer:
    def __init__(self, names, language):
        self.names, self.language, self.up = names, language, "../../"
        self.out = []

    def prose(self, entity):
        if entity.doc:
            self.out.append(self.names.prose(entity.doc, entity.scope, self.up))

    def code(self, lines):
        self.out.append(f"```{self.language}\n" + "\n".join(f"{laid_out(line)};" for line in lines) + "\n```")

    def rows(self, entities):
        """Members, as terms with their comments."""
        for entity in entities:
            doc = self.names.prose(entity.doc, entity.scope, self.up).replace("\n", "\n    ")
            self.out.append(f"`#!{self.language} {entity.signatures[0]}`{{ #{anchor(entity)} }}\n:   {doc or '&nbsp;'}")

    def entity(self, entity, level):
        kind = entity.kind
        title = entity.full_name if kind != "macro" else entity.name
        title = re.sub(r"(_|::)(?=\w)", r"\1<wbr>", title.replace("<", "&lt;"))  # a phone breaks names there
        label = "struct" if self.language == "c" and kind == "struct" else UNITS.get(kind, "")
        self.out.append(f"{'#' * level} <code>{title}</code> {{ #{anchor(entity)} .kind-{label} }}")
        if kind in ("function", "alias", "constant"):
            self.code(entity.signatures)
        elif kind == "macro":
            self.out.append(f"```{self.language}\n{entity.signatures[0]}\n```")
        elif entity.signatures[0].startswith("template") or ":" in entity.signatures[0].replace("::", ""):
            self.code(entity.signatures)
        self.prose(entity)
        plain = [m for m in entity.members if m.kind in ("member", "enumerator", "constant")]
        self.rows(plain)
        types = [m for m in entity.members if m.kind in ("struct", "class", "enum", "alias")]
        functions = [m for m in entity.members if m.kind == "function"]
        usual = [m for m in functions if not m.doc and not m.needs_doc]
        for inner in types:
            self.entity(inner, level + 1)
        for inner in functions:
            if inner not in usual:
                self.entity(inner, level + 1)
        if usual:
            self.out.append("It also has:")
            self.code([signature for m in usual for signature in m.signatures])

    def page(self, header):
        name = header.path
        self.out = [f"---\ntitle: {name.removeprefix('attnc/').removeprefix('c/')}\n---", f"# <code>{name}</code>"]
        about = header.about or (header.entities and "")
        if about:
            self.out.append(self.names.prose(about, "", self.up))
        self.out.append(f'```{self.language}\n#include "{"attnc/c.h" if "/c/" in name else name}"\n```')
        for entity in header.entities:
            self.entity(entity, 2)
        return "\n\n".join(self.out) + "\n"


def index(title, header, others, names):
    """The page of attnc.h or c.h: what it says, and a table of the names of each header."""
    about = header.about.split("\n")
    lines = [line for line in about if not line.startswith("  ") or not line.rstrip().endswith(".h.")]
    words = re.sub(r"(?m)^([A-Z]\w+)\. ", r"**\1.** ", names.prose("\n".join(lines), "", "../../"))
    out = [f"# {title}", words, "## Headers"]
    for other in others:
        listed = [e for e in other.entities if e.kind != "macro" or e.doc]
        links = ", ".join(f"[`{e.name}`]({pathlib.PurePath(page_of(other)).name}#{anchor(e)})" for e in listed)
        first = names.inline(" ".join(other.about.split("\n\n")[0].split("\n")), "", "../../")
        page = pathlib.PurePath(page_of(other))
        out.append(f"### [`{other.path}`]({page.name}) {{ #{page.stem} }}\n\n{first}\n\n{links}")
    return "\n\n".join(out) + "\n"


def write(pages):
    every = headers.read_all()
    holes = [hole for header in every for hole in headers.undocumented(header)]
    names = place_all(every)
    (pages / "api/cpp").mkdir(parents=True, exist_ok=True)
    (pages / "api/c").mkdir(parents=True, exist_ok=True)
    parts = {"cpp": [], "c": []}
    tops = {}
    for header in every:
        part = page_of(header).split("/")[1]
        if header.path in ("attnc/attnc.h", "attnc/c.h"):
            tops[part] = header
            continue
        (pages / page_of(header)).write_text(Writer(names, part).page(header))
        parts[part].append(header)
    (pages / "api/cpp/attnc.md").write_text(index("The C++ interface", tops["cpp"], parts["cpp"], names))
    (pages / "api/c/c.md").write_text(index("The C interface", tops["c"], parts["c"], names))
    return holes
