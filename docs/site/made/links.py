"""Checks the links of the built site, those in plain HTML as well: files and anchors exist, and nothing that a page
loads is on another host. Each page has one heading of level 1. Blocks with prompts say what their button copies.

  links.py SITE      prints each broken link; exit code 1 if there are some
"""

import ast
import html.parser
import pathlib
import posixpath
import re
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors, self.titles = [], [], set(), 0
        self.copies, self.prompts = "", 0  # what the last block copies; prompts that a button copies
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.titles += tag == "h1"
        if tag == "div":
            self.copies = values.get("data-copy", "")
        self.prompts += tag == "span" and values.get("class") == "gp" and (not self.copies or self.copies[0] == "$")
        if values.get("id"):
            self.anchors.add(values["id"])
        if tag == "a" and values.get("name"):
            self.anchors.add(values["name"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in ("img", "script", "source", "iframe") and values.get("src"):
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preconnect"):
            self.loaded.append(values["href"])


def findings(site):
    pages = {path.relative_to(site).as_posix(): Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for name, page in pages.items():
        if name == "404.html":  # its links begin at the host's root
            continue
        if page.titles != 1:  # a second one ends the table of contents: a comment of code that is not in a block
            yield f"{name}: {page.titles} headings of level 1"
        if page.prompts:
            yield f"{name}: {page.prompts} prompts are copied with their commands"
        for address in page.loaded:
            if urllib.parse.urlsplit(address).netloc:
                yield f"{name}: loads {address}"
        for address in page.links + page.loaded:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            path = urllib.parse.unquote(parts.path)
            target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
            if (site / target).is_dir():
                target = posixpath.join(target, "index.html").removeprefix("./")
            if not (site / target).exists():
                yield f"{name}: no such file: {address}"
            elif parts.fragment and target in pages and not parts.fragment.startswith(("__", "only-", ":~:")) and (
                    urllib.parse.unquote(parts.fragment) not in pages[target].anchors):
                yield f"{name}: no such anchor: {address}"


def missing_of_python(site, package):
    """Public names of the Python package that its page does not have."""
    anchors = Page((site / "api/python.html").read_text()).anchors
    for module in ("", "torch/"):
        tree = ast.parse((package / module / "__init__.py").read_text())
        for node in tree.body:
            names = [each.name for each in node.names] if isinstance(node, ast.ImportFrom) and node.level else []
            source = module.replace("/", ".") if names and node.level == 1 else ""
            for name in names:
                place = re.compile(rf"attnc\.{source}(\w+\.)?{name}")
                if not any(map(place.fullmatch, anchors)):
                    yield f"api/python.html: no {name} of attnc/{module}__init__.py"


def main():
    found = list(findings(pathlib.Path(sys.argv[1])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
