"""An extension of Griffe: docstrings of the Python package as Markdown, with names, shapes and texts in code."""

import griffe
import text


def marked(docstring):
    out = []
    for block in docstring.split("\n\n"):
        lines = block.split("\n")
        if block.startswith("    "):
            out.append("```python\n" + "\n".join(line[4:] for line in lines) + "\n```")
        else:
            out.append(text.Names().inline(" ".join(line.strip() for line in lines)))
    return "\n\n".join(out)


class Marked(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = marked(obj.docstring.value)
