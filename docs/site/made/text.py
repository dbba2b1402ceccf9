"""Words of sources as Markdown: comments, names that become links, tables."""

import re

COLUMNS = 96  # characters of code that a page shows at a width of 1280
KEEP = ("FlexAttention", "PyTorch", "NumPy", "DLPack", "kB")


def escaped(text):
    return re.sub(r"([*\[\]_#])", r"\\\1", text).replace("<", "&lt;").replace("|", "&#124;")


def command_lines(command):
    """A line of a shell as it fits a page: a longer one goes on in lines of its own, before an option."""
    lines = []
    for part in re.split(r" (?=--?[A-Za-z])", command):
        if lines and len(lines[-1]) + len(part) < COLUMNS - 2:
            lines[-1] += f" {part}"
        else:
            lines.append(f"    {part}" if lines else part)
    return " \\\n".join(lines)


def cell(text):
    """Code in a cell of a table."""
    return f"`{text}`" if text else ""


def terms(lines):
    """Returns (term, meaning) of lines in two columns, whose first stays empty where a meaning goes on. Otherwise []."""
    first = re.match(r"\w+(?:,? \w+)*  +(?=\S)", lines[0])
    if not first or len(lines) < 2:
        return []
    rows, column = [], first.end()
    for line in lines:
        term, meaning = line[:column].rstrip(), line[column:]
        if line[column - 2 : column].strip() or "  " in meaning or not meaning or meaning[0] == " ":
            return []
        if term:
            rows.append((term, meaning))
        else:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {meaning}")
    return rows


class Names:
    """The places of public names: full name -> link relative to the site's root."""

    def __init__(self):
        self.places, self.headers = {}, {}

    def link(self, name, scope):
        """Returns the place that a name means inside a class, or None."""
        candidates = [f"{scope}::{name}"] if scope else []
        while "::" in scope:
            scope = scope.rpartition("::")[0]
            candidates.append(f"{scope}::{name}")
        return next((self.places[each] for each in [*candidates, name] if each in self.places), None)

    def inline(self, text, scope="", up=""):
        """A line of a comment as Markdown. `up` leads from the page to the site's root."""

        def word(match):
            path, name, call = match["file"], match["name"], match["call"] or ""
            if match["member"]:
                return f"`{match['member']}`"
            if path:
                place = self.headers.get(path) or self.headers.get(f"attnc/{path}")
                return f"[`{path}`]({up}{place})" if place else f"`{path}`"
            around = match.string[max(0, match.start() - 1) : match.end() + 1]
            is_marked = (call or "::" in name or "_" in name or re.search(r"[a-z0-9][A-Z]", name)
                         or around == f"({name})" and name in self.places)  # C's (Operands)
            if not is_marked or name in KEEP:
                return name
            place = self.link(name, scope)
            if place:
                return f"[`{name}{call}`]({up}{place})"
            return f"`{name}{call}`" if call or "_" in name or name[0].islower() or "::" in name else name

        pieces = re.split(r"(`[^`]*`|\"[^\"]*\"|\[[^][()]*[\])]|https?://[^\s,;)]+)", text)
        file = r"(?P<file>(?:\w+/)*\w+\.(?:h|def|md|cuh?))"
        call = r"(?P<member>\w+(?:\.|->)\w+\(\))"
        known = r"(?P<name>[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)(?P<call>\(\))?"
        pattern = rf"(?<![\w/.$-])(?:{file}|{call}|{known})(?![\w/])"
        out = []
        for index, piece in enumerate(pieces):
            if index % 2:
                is_words = piece[0] == '"' and " " in piece and not re.search(r"[*/\[(=_]", piece)
                out.append(piece if piece[0] == "`" else f"<{piece}>" if piece[0] == "h" else
                           escaped(piece) if is_words else f"`{piece}`")
                continue
            last = 0
            for match in re.finditer(pattern, piece):
                out += [escaped(piece[last : match.start()]), word(match)]
                last = match.end()
            out.append(escaped(piece[last:]))
        return "".join(out)

    def prose(self, doc, scope="", up=""):
        """A comment as paragraphs. Indented terms with their meanings become a table; what else is indented, or between
        fences, stays as it is."""
        blocks, kind = [], None
        fenced = False
        for line in doc.splitlines():
            if line.strip().startswith("```"):
                fenced = not fenced
                kind = None
                continue
            now = "code" if fenced or line.startswith("  ") and line.strip() else "text" if line.strip() else None
            if now is None:
                kind = None if kind != "code" else kind
                if kind == "code":
                    blocks[-1][1].append("")
                continue
            if now != kind:
                blocks.append((now, []))
                kind = now
            blocks[-1][1].append(line)
        out = []
        for kind, lines in blocks:
            if kind == "text":
                out.append(self.inline(" ".join(line.strip() for line in lines), scope, up))
            else:
                while not lines[-1].strip():
                    lines.pop()
                indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
                lines = [line[indent:] for line in lines]
                rows = terms(lines)
                if rows:
                    out.append("\n".join(["| | |\n|---|---|"] + [
                        f"| {escaped(term)} | {self.inline(meaning, scope, up)} |" for term, meaning in rows]))
                    continue
                body = "\n".join(lines)
                language = "cpp" if re.search(r";(\s*//.*)?$", body, re.M) else "text"
                out.append(f"```{language}\n{body}\n```")
        return "\n\n".join(out)
