"""A hook of MkDocs: how code is coloured, and where it may break."""

import re

from pygments.lexers.shell import BashSessionLexer

# Blocks `console` have the prompts $ and > only: output also begins with % and #.
BashSessionLexer._ps1rgx = re.compile(r"^(\$ )(.*\n?)")


def broken(match):
    """Code in a cell of a table breaks behind :: and _, not within a word."""
    return re.sub(r"(<code>)([^<]{20,})(?=</code>)", lambda code: code[1] + re.sub(r"(::|\(|_(?!_))", r"\1<wbr>", code[2]),
                  match.group())


def on_page_content(html, **_):
    """Short code with a dash stays on one line."""
    html = re.sub(r"<td.*?</td>", broken, html, flags=re.S)
    return re.sub(r"<code>(?=[^<]{1,28}</code>)(?=[^<]*-)", '<code class="short">', html)
