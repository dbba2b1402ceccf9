"""Draws grouped bars: takes figures per case and series, returns the text of an SVG. Uses no files and no libraries.

Cases of one kind, head dim and length share a panel. Panels of a kind stand side by side if they fit. All share one
scale.
"""
import math
from xml.sax.saxutils import escape

WIDTH, MARGIN = 1140, 16
LEFT, GAP = 44, 24  # before a row's first panel, for the scale; between panels
TOP, PANEL_TOP, PLOT, PANEL_BOTTOM = 84, 30, 230, 46
LEGEND_LINE = 20
BAR, GROUP_GAP, MIN_PANEL = 20, 18, 160
INK, FAINT, GRID = "#222222", "#666666", "#dddddd"
# Colours that the colour-blind can also tell apart (Okabe and Ito's set); the first series is ours.
COLOURS = ["#d55e00", "#0072b2", "#56b4e9", "#009e73", "#999999", "#cc79a7", "#e69f00", "#f0e442"]
PAPER = "#ffffff"
# What these become in dark surroundings.
DARK = {INK: "#e6edf3", FAINT: "#9da7b3", GRID: "#30363d", PAPER: "#0d1117", "#d55e00": "#ff8b3d", "#0072b2": "#4f9fe0",
        "#56b4e9": "#a5dbff", "#009e73": "#2fc79a", "#999999": "#7d8590", "#cc79a7": "#e29ac4"}
NAMES = {"noop": "no mod", "alibi": "ALiBi", "prefix_lm": "prefix LM", "softcap": "soft cap",
         "softcap_approx": "soft cap, approx.", "sliding_window": "window", "document": "documents",
         "neighborhood2d": "neighborhood"}
RESTS = {"q_std64": "scores of std 64"}


def text(x, y, what, size=12, anchor="middle", fill=INK, bold=False):
    weight = ' font-weight="bold"' if bold else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}"{weight}>'
            f"{escape(str(what))}</text>")


def line(x0, y0, x1, y1, stroke, dashed=False):
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{stroke}"{dash}/>'


def picture(title, width, height, parts):
    """Returns an SVG of `parts` whose colours follow the surroundings."""
    body = "\n".join([f"<title>{escape(title)}</title>", f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
                      *parts])
    rules = "".join(f'[{key}="{colour}"]{{{key}:{other}}}' for colour, other in DARK.items()
                    for key in ("fill", "stroke") if f'{key}="{colour}"' in body)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="Helvetica, Arial, sans-serif">\n'
            f"<style>@media(prefers-color-scheme:dark){{{rules}}}</style>\n{body}\n</svg>\n")


def scale_step(top):
    """Returns a round distance of grid lines, with four to eight of them below `top`."""
    power = 10 ** math.floor(math.log10(top / 4))
    return max(power * factor for factor in (1, 2, 5) if power * factor <= top / 4)


def panel_title(case):
    if not case.shape:
        return ("other", "")
    return (f"{case.kind}, head dim {case.shape[5]}", f"length {case.length()}")


def group_width(count):
    return count * BAR + GROUP_GAP


def panels_of(bars):
    """Returns title -> cases, in order of appearance. Cases without a bar are left out."""
    panels = {}
    for case, group in bars.items():
        if group:
            panels.setdefault(panel_title(case), []).append(case)
    return panels


def panel_width(cases, bars):
    # A group is no narrower than its label.
    return max(MIN_PANEL, sum(max(label_width(case), group_width(len(bars[case]))) for case in cases))


def label_width(case):
    return 7 * max(len(part) for part in label(case)) + 8


def label(case):
    """Returns the lines under a group. A long variant's name breaks at its first space."""
    if not case.shape:
        return [case.id]
    name = NAMES.get(case.variant, case.variant.replace("_", " "))
    words = name.split(" ", 1) if len(name) > 10 else [name]
    rest = RESTS.get(case.rest, case.rest)
    return [*words, f"{case.shape[0]} x {case.heads()}" + (f", {rest}" if rest else "")]


def rows_of(panels, bars):
    """Arranges panels in rows, [[(title, cases, x, width)]], each in the first row of its kind with room. One wider
    than a row is cut."""
    pieces = []
    for title, cases in panels.items():
        piece = []
        for case in cases:
            if piece and panel_width([*piece, case], bars) > WIDTH - LEFT - MARGIN:
                pieces.append((title, piece))
                piece = []
            piece.append(case)
        pieces.append((title, piece))
    rows, ends = [], []
    for title, cases in pieces:
        width = panel_width(cases, bars)
        fitting = next((i for i, end in enumerate(ends) if rows[i][0][1][0].kind == cases[0].kind and
                        end + GAP + width <= WIDTH - MARGIN), len(rows))
        if fitting == len(rows):
            rows.append([])
            ends.append(LEFT - GAP)
        rows[fitting].append((title, cases, ends[fitting] + GAP, width))
        ends[fitting] += GAP + width
    return rows


def draw_group(case, group, colours, x, width, base, height):
    """Draws a case's bars with their figures, and its description below them."""
    parts = []
    left = x + (width - BAR * len(group)) / 2
    for i, (name, value) in enumerate(group.items()):
        tall = height(value)
        parts.append(f'<rect x="{left + i * BAR + 1:.1f}" y="{base - tall:.1f}" width="{BAR - 2}" height="{tall:.1f}" '
                     f'fill="{colours[name]}"><title>{escape(f"{case.id}, {name}: {value:g}")}</title></rect>')
        ours = colours[name] == COLOURS[0]
        parts.append(text(left + (i + 0.5) * BAR, base - tall - 3, f"{value:.0f}", 9.5, bold=ours))
    for i, words in enumerate(label(case)):
        last = i == len(label(case)) - 1
        parts.append(text(x + width / 2, base + 15 + 13 * i, words, 11, fill=FAINT if last else INK))
    return parts


def draw_panel(panel, y, bars, colours, top, ceiling):
    """Draws a panel whose upper edge is at y."""
    (title, length), cases, x, width = panel
    base = y + PANEL_TOP + PLOT
    height = lambda value: PLOT * value / top
    parts = [text(x, y + 12, title, 12.5, "start", bold=True), text(x, y + 26, length, 11.5, "start", FAINT)]
    step = scale_step(top)
    for i in range(int(top / step) + 1):
        parts.append(line(x, base - height(i * step), x + width, base - height(i * step), INK if i == 0 else GRID))
        if x == LEFT:
            parts.append(text(x - 6, base - height(i * step) + 4, f"{i * step:g}", 10.5, "end", FAINT))
    if ceiling:
        parts.append(line(x, base - height(ceiling), x + width, base - height(ceiling), FAINT, dashed=True))
    widths = [max(label_width(case), group_width(len(bars[case]))) for case in cases]
    spare = (width - sum(widths)) / len(cases)
    for case, own in zip(cases, widths):
        parts += draw_group(case, bars[case], colours, x, own + spare, base, height)
        x += own + spare
    return parts


def draw_legend(series, colours, ceiling):
    """Returns the legend's parts, and its number of lines."""
    entries = [(name, 46 + 7.2 * len(name)) for name in series]
    product = f"a large matrix product: {ceiling:.0f}" if ceiling else ""
    entries += [(product, 30 + 7.2 * len(product))] if ceiling else []
    parts, x, lines = [], LEFT, 1
    for i, (name, wide) in enumerate(entries):
        if x + wide > WIDTH - MARGIN and x > LEFT:
            x, lines = LEFT, lines + 1
        y = 42 + LEGEND_LINE * (lines - 1)
        if i < len(series):
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="13" height="13" fill="{colours[name]}"/>')
            parts.append(text(x + 19, y + 11, name, 12.5, "start", bold=colours[name] == COLOURS[0]))
        else:
            parts.append(line(x, y + 6.5, x + 24, y + 6.5, FAINT, dashed=True))
            parts.append(text(x + 30, y + 11, name, 12.5, "start", FAINT))
        x += wide
    return parts, lines


def bar_chart(title, series, bars, ceiling=None):
    """Returns the SVG of `bars`: case -> {series: figure}. `series` is the order of the legend; `ceiling` is a line
    across all panels."""
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(series)}
    values = [value for group in bars.values() for value in group.values()]
    top = 1.06 * max([*values, ceiling or 0, 1])
    rows = rows_of(panels_of(bars), bars) if values else []
    row_height = PANEL_TOP + PLOT + PANEL_BOTTOM + 26
    legend, legend_lines = draw_legend(series, colours, ceiling)
    panels_top = TOP + LEGEND_LINE * (legend_lines - 1)
    total = panels_top + row_height * len(rows)
    parts = [
        text(LEFT, 26, title, 16, "start", bold=True),
        text(WIDTH - MARGIN, 26, "below each group: batch x heads(/kv heads)", 12, "end", FAINT),
        *legend,
    ]
    for i, row in enumerate(rows):
        for panel in row:
            parts += draw_panel(panel, panels_top + i * row_height, bars, colours, top, ceiling)
    return picture(title, WIDTH, total, parts)
