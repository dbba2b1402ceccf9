"""Writes the notebooks as Markdown: cells of text as they are, cells of code with the outputs that are stored in them."""

import json


def shown(output, picture):
    """An output as Markdown. One that is a picture is also written to the file `picture`."""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        picture.parent.mkdir(exist_ok=True)
        picture.write_text("".join(data["image/svg+xml"]))
        return f'<p class="picture"><img src="pictures/{picture.name}" alt="the mask, block by block" loading="lazy"></p>'
    return f"```{{ .text .no-copy }}\n{''.join(output.get('text') or data['text/plain']).rstrip()}\n```"


def write(pages):
    for path in sorted(pages.rglob("*.ipynb")):
        out = []
        for number, cell in enumerate(json.loads(path.read_text())["cells"], 1):
            source = "".join(cell["source"])
            out.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
            out += [shown(output, path.parent / f"pictures/{path.stem}-{number}.svg") for output in cell.get("outputs", ())]
        path.with_suffix(".md").write_text("\n\n".join(out) + "\n")
        path.unlink()
