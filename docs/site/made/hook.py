"""A hook of MkDocs: how code is coloured and copied, where it may break, and what the search finds first."""

import html
import re

from pygments.lexers.shell import BashSessionLexer

# Blocks `console` have the prompts $ and > only: output also begins with %, # and brackets.
BashSessionLexer._ps1rgx = re.compile(r"^(\$ )(.*\n?)")
BashSessionLexer._venv = re.compile(r"(?!)")

# Weights of pages in the search, by the beginning of their path; those of guides are 1.
WEIGHTS = {"start": 2, "notes/": 0.1, "benchmarks": 0.2, "changelog": 0.2, "contributing": 0.2, "operations": 0.2, "api/": 0.4,
           "diagnostics": 0.5, "gallery/": 0.5, "internals": 0.5, "commands/": 0.7}


def on_page_markdown(markdown, page, **_):
    weight = next((weight for start, weight in WEIGHTS.items() if page.file.src_uri.startswith(start)), None)
    if weight:
        page.meta.setdefault("search", {"boost": weight})
    return markdown


def copied(match):
    """The button of a block with prompts copies its commands, without prompts and outputs."""
    text = re.sub(r"<[^>]+>", "", re.sub(r'<span class="g[po]">.*?</span>', "", match[2]))
    commands = html.unescape("\n".join(line for line in text.splitlines() if line.strip()))
    return f'{match[1]} data-copy="{html.escape(commands)}">{match[2]}'


def broken(match):
    """Code in a cell of a table breaks behind :: and _, not within a word."""
    return re.sub(r"(<code>)([^<]{20,})(?=</code>)", lambda code: code[1] + re.sub(r"(::|\(|_(?!_))", r"\1<wbr>", code[2]),
                  match.group())


def on_page_content(html, page, config, **_):
    """Short code with a dash stays on one line. The foot names the file of a document, for who edits it."""
    if source := config["extra"]["sources"].get(page.file.src_uri):
        html += f'<p class="source" data-search-exclude>This page is <code>{source}</code>.</p>'
    html = re.sub(r"<td.*?</td>", broken, html, flags=re.S)
    html = re.sub(r'(<div class="[^"]*highlight")>((?:(?!</div>).)*<span class="gp">.*?</div>)', copied, html, flags=re.S)
    return re.sub(r"<code>(?=[^<]{1,28}</code>)(?=[^<]*-)", '<code class="short">', html)
