"""Draws grouped bars with matplotlib: takes figures per case and series, returns the text of an SVG. Uses no files.

Cases of one kind and head dim share a panel. All panels share one scale.
Needs matplotlib: pip install matplotlib==3.11.2. Another version draws the same chart in other bytes.
"""
import io
import re

from results import ResultError

MATPLOTLIB = "3.11.2"  # drew the committed charts
INK, FAINT, GRID = "#222222", "#666666", "#dddddd"
# Colours that the colour-blind can also tell apart (Okabe and Ito's set); the first series is ours.
COLOURS = ["#d55e00", "#0072b2", "#56b4e9", "#009e73", "#999999", "#cc79a7", "#e69f00", "#f0e442"]
# DejaVu comes with matplotlib, so all machines lay out the same text.
STYLE = {"svg.hashsalt": "attnc", "svg.fonttype": "none", "text.parse_math": False, "text.color": INK,
         "font.size": 8, "axes.axisbelow": True,
         "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Arial", "sans-serif"]}
WIDTH, PANEL, HEAD = 11.4, 2.6, 0.5  # inches: of the picture; heights of a panel, and of the title
ROW, LEAST, GAP = 62, 12, 2  # in bars: widths of a row, of the narrowest panel, and between panels
NAMES = {"noop": "no mod", "alibi": "ALiBi", "prefix_lm": "prefix LM", "softcap": "soft cap",
         "softcap_approx": "soft cap, approx.", "sliding_window": "window", "document": "documents",
         "neighborhood2d": "neighborhood"}
RESTS = {"q_std64": "scores of std 64"}


def new_figure(width, height):
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ResultError(f"{error}: charts need it, pip install matplotlib=={MATPLOTLIB}") from None
    matplotlib.rcParams.update(matplotlib.rcParamsDefault)
    matplotlib.rcParams.update(STYLE)
    return Figure((width, height))


def svg_of(figure):
    """Returns the figure's SVG, a line for each panel. It holds no date."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return re.sub(r"\s*\n\s*", " ", file.getvalue()).replace(' <g id="axes_', '\n<g id="axes_').strip() + "\n"


def width_of(label, group):
    """Returns the width of a group and the gap behind it, in bars: a group is no narrower than its label."""
    return 1 + max(len(group), 0.36 * max(map(len, label.split("\n"))))


def draw_panel(axes, title, groups, colours, top, width=None):
    """Draws groups [(label, {series: figure})] into a panel of this width in bars, by default of their own."""
    left, ticks = 0, []
    for label, group in groups:
        own = width_of(label, group)
        ticks.append(left + own / 2)
        for i, (name, value) in enumerate(group.items()):
            x = ticks[-1] + i - (len(group) - 1) / 2
            axes.bar(x, value, 0.9, color=colours[name], label=name, clip_on=False)
            axes.text(x, value + top / 150, f"{value:.0f}", ha="center", fontsize=6.5,
                      weight="bold" if colours[name] == COLOURS[0] else "normal")
        left += own
    axes.set(xlim=(0, width or left), ylim=(0, top))
    axes.set_title(title, loc="left", fontsize=9, weight="bold")
    axes.set_xticks(ticks, [label for label, _ in groups])
    axes.tick_params(length=0, labelcolor=INK)
    axes.tick_params("y", labelcolor=FAINT, labelsize=7)
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.spines[["top", "left", "right"]].set_visible(False)


def draw_legend(figure, series, handles, place, columns):
    names = [name for name in series if name in handles] + [name for name in handles if name not in series]
    if names:
        figure.legend([handles[name] for name in names], names, loc="upper left", bbox_to_anchor=place, ncols=columns,
                      frameon=False, columnspacing=1.4)


def label(case):
    """Returns the lines under a group. A long variant's name breaks at its first space."""
    if not case.shape:
        return case.id
    name = NAMES.get(case.variant, case.variant.replace("_", " "))
    rest = RESTS.get(case.rest, case.rest)
    shape = f"{case.shape[0]} x {case.heads()}" + (f", {rest}" if rest else "")
    return "\n".join([*(name.split(" ", 1) if len(name) > 10 else [name]), shape, f"length {case.length()}"])


def panel_width(groups):
    return max(LEAST, sum(width_of(*group) for group in groups))


def rows_of(bars):
    """Returns rows of panels, each (title, groups), in order of appearance. Cases without a bar are left out. A row is
    of one kind. A panel that is wider than a row is cut."""
    panels, rows, ends = {}, {}, {}
    for case, group in bars.items():
        if group:
            panels.setdefault((case.kind, case.shape and case.shape[5]), [[]])[-1].append((label(case), group))
            cut = panels[case.kind, case.shape and case.shape[5]]
            if panel_width(cut[-1]) > ROW and len(cut[-1]) > 1:
                cut.append([cut[-1].pop()])
    for (kind, head_dim), pieces in panels.items():
        for groups in pieces:
            end = ends.get(kind, ROW) + GAP + panel_width(groups)
            if end > ROW:
                rows.setdefault(kind, []).append([])
                end = panel_width(groups)
            rows[kind][-1].append((f"{kind}, head dim {head_dim}" if head_dim else "other", groups))
            ends[kind] = end
    return [row for by_kind in rows.values() for row in by_kind]


def bar_figure(title, series, bars, ceiling=None):
    """Returns the chart of `bars`: case -> {series: figure}. `series` is the order of the legend; `ceiling` is a line
    across all panels."""
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(series)}
    values = [value for group in bars.values() for value in group.values()]
    top = 1.06 * max([*values, ceiling or 0, 1])
    rows = rows_of(bars)
    head = HEAD + 0.2 * -(-(len(series) + bool(ceiling)) // 5)
    height = head + PANEL * len(rows)
    figure = new_figure(WIDTH, height)
    unit = 0.95 / ROW  # of the figure's width
    handles = {}
    for i, row in enumerate(rows):
        left = 0.035
        for panel, groups in row:
            width = panel_width(groups)
            axes = figure.add_axes((left, 1 - (head + PANEL * i + 1.95) / height, width * unit, 1.65 / height))
            left += (width + GAP) * unit
            draw_panel(axes, panel, groups, colours, top, width)
            axes.tick_params(labelleft=axes.get_position().x0 < 0.04)
            if ceiling:
                axes.axhline(ceiling, color=FAINT, linestyle="--", linewidth=0.8,
                             label=f"a large matrix product: {ceiling:.0f}")
            handles.update(zip(*reversed(axes.get_legend_handles_labels())))
    figure.text(0.015, 1 - 0.25 / height, title, fontsize=12, weight="bold")
    figure.text(0.985, 1 - 0.25 / height, "below each group: batch x heads(/kv heads)", ha="right", color=FAINT)
    draw_legend(figure, series, handles, (0.005, 1 - 0.3 / height), 5)
    return figure


def bar_chart(*arguments, **more):
    """Returns the SVG of bar_figure()."""
    return svg_of(bar_figure(*arguments, **more))
