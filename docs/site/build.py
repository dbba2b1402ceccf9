#!/usr/bin/env python3
"""Builds the documentation site.

  docs/site/build.py [--build DIR] [--attnc FILE] [--install] [--partial] [--serve]

Copies docs/ and the documents of other folders to DIR/docs/pages, writes the made pages there, and builds DIR/site.
Default: DIR is build, FILE is DIR/attnc. With --install, only makes DIR/docs/environment, with the packages of
requirements.txt. Without them, prints SKIPPED. Each warning is an error: a broken link, a public name
without a comment. With --partial, pages that the navigation names may be missing. --serve shows the site.
"""

import argparse
import importlib.util
import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import venv

SITE = pathlib.Path(__file__).resolve().parent
ROOT = SITE.parents[1]
# Documents of other folders, and where they are on the site.
DOCUMENTS = {
    "CONTRIBUTING.md": "contributing.md",
    "bench/README.md": "benchmarks.md",
    "bench/NOTES.md": "notes/index.md",
    **{f"bench/notes/{path.name}": f"notes/{path.name}" for path in sorted((ROOT / "bench/notes").glob("*.md"))},
}
# Sources that became pages.
PAGES = {
    "README.md": "index.md",
    "dsl/SPEC.md": "language/reference.md",
    "dsl/mods": "gallery/index.md",
    "dsl/mods/README.md": "gallery/index.md",
    "dsl/diagnostics.def": "diagnostics.md",
    "dsl/warnings.def": "diagnostics.md",
    "src/ir/ops.def": "operations.md",
    "src/passes/passes.def": "operations.md",
    "src/jit/env.def": "environment.md",
    "include/attnc": "api/cpp/attnc.md",
    "include/attnc/attnc.h": "api/cpp/attnc.md",
    "include/attnc/c": "api/c/c.md",
    "include/attnc/c.h": "api/c/c.md",
    **DOCUMENTS,
}
TEXT = {".py", ".h", ".hpp", ".cpp", ".cu", ".cuh", ".c", ".def", ".sh", ".cmake", ".txt", ".md", ".json", ".jsonl"}
# Text in brackets, which may hold brackets itself; an address, perhaps with a title.
LINK = re.compile(r"(!?\[)([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]\(([^()\s]+)((?:\s+\"[^\"]*\")?\))")


def page_for(source):
    """The page that a file of the tree became, or None."""
    if source in PAGES:
        return PAGES[source]
    path = pathlib.PurePath(source)
    if source.startswith("docs/") and path.suffix in (".md", ".ipynb"):
        return path.with_suffix(".md").as_posix().removeprefix("docs/")
    if path.parent.as_posix() == "dsl/mods" and path.suffix == ".py":
        return f"gallery/{path.stem}.md"
    if path.suffix in (".h", ".hpp") and source.startswith("include/attnc/"):
        return f"api/{'c' if path.parent.name == 'c' else 'cpp'}/{path.stem}.md"
    return None


def relinked(text, source, page, pages):
    """The text of `source` with links that hold on `page`: what is no page is copied to files/."""

    def target_of(address):
        address, mark, anchor = address.partition("#")
        if not address or re.match(r"\w+:", address):
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), address))
        is_here = source.startswith("docs/") and path.startswith("docs/") and not path.startswith("docs/site/")
        if is_here and not path.endswith(".ipynb") or not (ROOT / path).exists():
            return None
        place = page_for(path)
        if place is None and (ROOT / path).is_file():
            place = f"files/{path}" + (".txt" if pathlib.PurePath(path).suffix in TEXT else "")
            (pages / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, pages / place)
        return place and posixpath.relpath(place, posixpath.dirname(page) or ".") + mark + anchor

    def markdown(match):
        target = target_of(match.group(3))
        if target:
            return f"{match.group(1)}{match.group(2)}]({target}{match.group(4)}"
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), match.group(3)))
        return match.group(2) if (ROOT / path).is_dir() and not path.startswith("docs") else match.group(0)

    def attribute(match):
        """Links in plain HTML are not MkDocs's: they lead to what it builds."""
        target = target_of(match.group(2)) or match.group(2)
        if not re.match(r"\w+:", target):
            target = re.sub(r"\.md(?=#|$)", ".html", target)
        return f'{match.group(1)}="{target}"'

    parts = re.split(r"(^```.*?^```\s*$)", text, flags=re.M | re.S)
    for index in range(0, len(parts), 2):
        parts[index] = LINK.sub(markdown, parts[index])
        parts[index] = re.sub(r"(?m)^  (?=[-*] )", "    ", parts[index])  # what Python-Markdown takes for an inner list
        parts[index] = re.sub(r'\b(src|href)="([^"]+)"', attribute, parts[index])
    return "".join(parts)


def stage(build, attnc):
    """Fills the folder of pages. Returns its path and what fills the wildcards of the navigation."""
    sys.path.insert(0, str(SITE / "made"))
    import api
    import commands
    import gallery
    import language
    import notebooks
    import tables

    pages = build / "docs/pages"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("site"))
    language.write(pages)
    notebooks.write(pages)
    for path in pages.rglob("*.md"):
        page = path.relative_to(pages).as_posix()
        source = "dsl/SPEC.md" if page == "language/reference.md" else f"docs/{page}"
        path.write_text(relinked(path.read_text(), source, page, pages))
    for source, page in DOCUMENTS.items():
        (pages / page).parent.mkdir(exist_ok=True)
        (pages / page).write_text(relinked((ROOT / source).read_text(), source, page, pages))
    shutil.copytree(SITE / "pages", pages, dirs_exist_ok=True)
    tables.write(pages)
    holes = api.write(pages)
    if holes:
        sys.exit("public names without a comment:\n  " + "\n  ".join(holes))
    return pages, {"gallery/*": [f"gallery/{name}.md" for name in gallery.write(pages, attnc)],
                   "commands/*": [f"commands/{name}.md" for name in commands.write(pages, attnc)]}


def navigation(nav, pages, lists, partial):
    """The navigation with its wildcards filled in."""
    out = []
    for entry in nav:
        title, value = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(value, list):
            inner = navigation(value, pages, lists, partial)
            if inner:
                out.append({title: inner})
        elif "*" in value:
            found = lists.get(value) or sorted(p.relative_to(pages).as_posix() for p in pages.glob(value))
            out += [page for page in found if page not in str(nav) and not page.endswith("index.md")]
        elif (pages / value).exists() or not partial:
            out.append(entry)
    return out


def version():
    """What the pages were made from: the version and, in a clone, the commit."""
    numbers = re.findall(r"define ATTNC_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", (ROOT / "include/attnc/version.h").read_text())
    command = ["git", "-C", ROOT, "log", "-1", "--format=, commit %h of %ad", "--date=format:%-d %B %Y"]
    said = subprocess.run(command, capture_output=True, text=True).stdout if shutil.which("git") else ""
    return f"attnc {'.'.join(numbers)}{said.strip()}"


def configure(build, pages, lists, partial):
    import yaml

    given = yaml.load((SITE / "mkdocs.yml").read_text().replace("!!python/name:", ""), yaml.SafeLoader)
    config = {
        "INHERIT": str(SITE / "mkdocs.yml"),
        "docs_dir": str(pages),
        "hooks": [str(SITE / "made/hook.py")],
        "site_dir": str(build / "site"),
        "copyright": version(),
        "extra": {"sources": {
            **{page.with_suffix(".md").relative_to(ROOT / "docs").as_posix(): page.relative_to(ROOT).as_posix()
               for kind in ("*.md", "*.ipynb") for page in (ROOT / "docs").rglob(kind) if SITE not in page.parents},
            **{page: source for source, page in [*DOCUMENTS.items(), ("dsl/SPEC.md", "language/reference.md")]},
        }},
        "nav": navigation(given["nav"], pages, lists, partial),
        "plugins": {"mkdocstrings": {"handlers": {"python": {
            "paths": [str(ROOT / "tools/python")],
            "options": {"extensions": [f"{SITE / 'made/docstrings.py'}:Marked"]},
        }}}},
    }
    path = build / "docs/mkdocs.yml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def environment_of(build):
    return build / "docs/environment/bin/python3"


def install(build):
    python = environment_of(build)
    stamp = build / "docs/environment/installed"
    wanted = (SITE / "requirements.txt").read_text()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    venv.create(build / "docs/environment", with_pip=True, clear=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r",
                    SITE / "requirements.txt"], check=True)
    stamp.write_text(wanted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--attnc", type=pathlib.Path)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--partial", action="store_true")
    parser.add_argument("--serve", action="store_true")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    if arguments.install:
        install(build)
        return 0
    python = environment_of(build)
    if python.exists() and pathlib.Path(sys.prefix) != python.parents[1]:
        os.execv(python, [python, *sys.argv])
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("tree_sitter_cpp") is None:
        print("SKIPPED: mkdocs-material is not installed; `tools/docs.sh` installs it")
        return 0
    pages, lists = stage(build, (arguments.attnc or build / "attnc").resolve())
    config = configure(build, pages, lists, arguments.partial)
    what = "serve" if arguments.serve else "build"
    mkdocs = [sys.executable, "-m", "mkdocs", what, "--strict", "--config-file", config]
    if arguments.serve:
        os.execv(sys.executable, mkdocs)
    result = subprocess.run(mkdocs, env={**os.environ, "NO_MKDOCS_2_WARNING": "true", "PYTHONPATH": str(SITE / "made")},
                            capture_output=True, text=True)
    if result.returncode:
        lines = (result.stdout + result.stderr).splitlines()
        print("\n".join(line for line in lines if line.strip() and not line.startswith("INFO")))
        return 1
    import links

    broken = [*links.findings(build / "site"), *links.missing_of_python(build / "site", ROOT / "tools/python/attnc")]
    if arguments.partial and not (pages / "index.md").exists():
        broken = [line for line in broken if not re.search(r": [./]+$", line)]  # links home
    print("\n".join([*broken, f"the site is in {build / 'site'}"]))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
