#!/usr/bin/env python3
"""Makes the tables and the plots of a page of docs/papers out of the result file of its program.

  python3 bench/papers/page.py flexattention FILE.jsonl...    # docs/papers/flexattention.md, and SVGs in docs/assets/papers
  python3 bench/papers/page.py flexattention FILE.jsonl... --print

A section's table stands between the lines `<!-- results SECTION -->` and `<!-- /results SECTION -->` of the page. Sections
without results are left as they are. Plots need matplotlib. A ratio is of times; above 1 attnc is faster.
Exit codes: 0 done; 1 a file cannot be read or written.
"""

import argparse
import importlib
import math
import re
import sys

import common
from bar_chart import COLOURS, FAINT, NAMES, draw_legend, draw_panel, label, new_figure, svg_of
from report import OURS, accuracy_table, figure, header, peer_name, plain, put_between, table, unit_of
from results import UNITS, Case, ResultError, read_results

DOCS = common.BENCH.parent / "docs"
PER_ROW = 4  # panels


def timed(results, section):
    """Returns the cases of a section that were timed, as Case objects."""
    return [Case.parse(case.id) for case in section.cases if any(results.rows.get(case.id, {}).values())]


def others(results, cases):
    """Returns who else was timed, or failed, in some of the cases. Ways of attnc are not among them."""
    own = lambda peer: peer == OURS or peer.startswith((f"{OURS}_", "flex_"))
    return [p for p in results.peers if not own(p) and any(results.best(c.id, p) or results.failed(c.id, p) for c in cases)]


def speedup(results, case, peer, over=OURS):
    """Returns the ratio of times of a peer and attnc; None: one is missing."""
    ours, theirs = results.best(case.id, over), results.best(case.id, peer)
    return theirs["ms"] / ours["ms"] if ours and theirs else None


def ratio(value):
    return "" if value is None else f"{value:.2f}"


def rates(results, section):
    """Returns the table of a section: attnc, the best of the others, and each of them."""
    cases = timed(results, section)
    peers, lines = others(results, cases), []
    for kind in dict.fromkeys(case.kind for case in cases):
        of_kind = [case for case in cases if case.kind == kind]
        unit, rows = unit_of(results.best(of_kind[0].id, OURS) or {"ms": 0}), []
        for case in of_kind:
            found = {peer: value for peer in peers if (value := speedup(results, case, peer))}
            best = min(found, key=found.get, default=None)
            cells = [figure(results, case, OURS, unit), f"{found[best]:.2f} ({peer_name(best)})" if best else ""]
            rows.append([plain(case.name()), *cells, *(figure(results, case, peer, unit) for peer in peers)])
        lines += [*table([f"{kind}, {UNITS[unit]}", OURS, f"{OURS} / best other", *map(peer_name, peers)], rows), ""]
    return lines


def pages(results, section):
    """Returns the table of caches in pages, next to the same caches in one piece."""
    cases = timed(results, section)
    peers, rows = others(results, cases), []
    us = lambda case, peer: "" if not (row := results.best(case.id, peer)) else f"{1000 * row['ms']:.1f}"
    for case in cases:
        cost = speedup(results, case, OURS, "attnc_contiguous")
        more = "" if cost is None else f"{100 * (cost - 1):+.1f} %"
        rows.append([plain(case.name()), us(case, OURS), us(case, "attnc_contiguous"), more, *(us(case, p) for p in peers)])
    return table(["us", "attnc, pages", "attnc, contiguous", "pages cost", *(f"{peer_name(p)}, pages" for p in peers)], rows)


def full_blocks(results, section):
    """Returns the table of what full blocks are worth: times without them for times with them."""
    rows = [
        [plain(f"{case.kind} {case.name()}"), *(ratio(speedup(results, case, f"{peer}_partial", f"{peer}_lists")) for peer in (OURS, "flex")),
         ratio(speedup(results, case, f"{OURS}_lists"))]
        for case in timed(results, section)
    ]  # fmt: skip
    return table(["time without full blocks / with them", OURS, peer_name("flex"), f"{OURS}: lists / no lists"], rows)


def errors(results, _section):
    return accuracy_table(results)


def errors_by_peer(results, _section):
    """Returns the table of errors of out: a row a peer."""
    cases = [Case.parse(case_id) for case_id in results.rmse]
    peers = dict.fromkeys(peer for by_peer in results.rmse.values() for peer in by_peer)
    rows = [[peer_name(peer), *(f"{found['out']:.2e}" if (found := results.rmse[c.id].get(peer)) else "" for c in cases)]
            for peer in peers]  # fmt: skip
    return table(["RMSE of out against fp64", *(f"d {case.shape[5]}" for case in cases)], rows)


def groups_of(results, section):
    """Returns {"2-D, backward": [case of a section]} of problems that attnc was timed on."""
    found = {}
    for case in section.cases:
        if results.best(case.id, OURS):
            found.setdefault(f"{len(case.extents)}-D, {case.kind}", []).append(case)
    return dict(sorted(found.items()))


def shares(results, section):
    """Returns the table of many problems: percentiles of ratios, and the share that attnc wins."""
    rows = []
    for name, cases in groups_of(results, section).items():
        for peer in [peer for peer in results.peers if peer != OURS]:
            found = sorted(value for case in cases if (value := speedup(results, case, peer)))
            if found:
                of = lambda share: f"{found[round(share * (len(found) - 1))]:.2f}"
                won = f"{100 * sum(value > 1 for value in found) / len(found):.1f} %"
                rows.append([f"{name}, {peer_name(peer)}", str(len(found)), won, *map(of, (0, 0.1, 0.5, 0.9, 1))])
    return table(["time of it / of attnc", "problems", "attnc wins", "least", "10 %", "median", "90 %", "most"], rows)


TABLES = {"full-blocks": full_blocks, "figure-12": pages, "figure-9": errors, "accuracy": errors_by_peer, "tables-1-3": shares, "table-4": shares,
          "fp16": shares, "fp32": shares}  # fmt: skip


def panels_of(results, section):
    """Returns {title: [case]} of a plot: cases that differ in length, or in variant, stand together."""
    found = {}
    for case in timed(results, section):
        of_length = (NAMES.get(case.variant, case.variant),) if section.plots == "length" else ()
        key = ", ".join((case.kind, *of_length, f"{case.heads()} heads of {case.shape[5]}"))
        found.setdefault(key, []).append(case)
    return found


def draw_lines(axes, title, results, cases, colours):
    for peer, colour in colours.items():
        points = sorted((case.shape[4], row[unit_of(row)]) for case in cases if (row := results.best(case.id, peer)))
        if points:
            axes.plot(*zip(*points), color=colour, label=peer_name(peer), marker="o", markersize=3,
                      linewidth=2 if peer == OURS else 1.2)  # fmt: skip
    ticks = sorted({case.shape[4] for case in cases})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{n >> 10}k" if n >= 1024 else f"{n}" for n in ticks])
    axes.set_ylim(bottom=0)
    framed(axes, title)


def framed(axes, title):
    axes.set_title(title, loc="left", fontsize=8, weight="bold")
    axes.tick_params("both", labelcolor=FAINT, labelsize=7, length=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.spines[["top", "left", "right"]].set_visible(False)


def draw_shares(axes, title, results, cases, colours):
    """Draws the ratios of problems, the least first."""
    top = 2
    for peer, colour in colours.items():
        found = sorted(value for case in cases if (value := speedup(results, case, peer)))
        top = max([top, *found])
        axes.plot([100 * (i + 0.5) / len(found) for i in range(len(found))], found, color=colour, label=peer_name(peer))
    axes.axhline(1, color=FAINT, linestyle="--", linewidth=0.8)
    axes.set_yscale("log", base=2)
    ticks = [2.0**i for i in range(-2, math.ceil(math.log2(top)) + 1)]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    framed(axes, title)
    axes.set_xlabel("% of the problems", fontsize=7, color=FAINT)


def plot(results, section):
    """Returns the SVG of a section, with a panel for each group of its cases."""
    is_shares = section.plots == "ratios"
    panels = groups_of(results, section) if is_shares else panels_of(results, section)
    names = results.peers[1:] if is_shares else [OURS, *others(results, timed(results, section))]
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    columns = {"length": PER_ROW, "ratios": 3}.get(section.plots, 1)
    rows = -(-len(panels) // columns)
    height = 0.9 + 2.3 * rows
    drawn = new_figure(11.4, height)
    grid = {"left": 0.045, "right": 0.99, "top": 1 - 0.75 / height, "bottom": 0.45 / height, "hspace": 0.55, "wspace": 0.2}
    places = drawn.subplots(rows, columns, squeeze=False, gridspec_kw=grid).flat
    handles = {}
    for axes, (title, cases) in zip(places, panels.items()):
        if is_shares:
            draw_shares(axes, title, results, cases, colours)
        elif section.plots == "length":
            draw_lines(axes, title, results, cases, colours)
        else:
            groups = [(label(case).split("\n")[0], {peer_name(p): row[unit_of(row)] for p in names if (row := results.best(case.id, p))})
                      for case in cases]  # fmt: skip
            by_name = {peer_name(name): colour for name, colour in colours.items()}
            draw_panel(axes, title, groups, by_name, 1.12 * max(value for _, group in groups for value in group.values()))
        handles.update(zip(*reversed(axes.get_legend_handles_labels())))
    for axes in list(places)[len(panels) :]:
        axes.set_visible(False)
    rows_of = [row for by_peer in results.rows.values() for row in by_peer.values()]
    units = [UNITS[unit_of(row)] for case in section.cases for row in results.rows.get(case.id, {}).values()]
    unit = "time of others / of attnc" if is_shares else units[0]
    drawn.text(0.015, 1 - 0.22 / height, f"{unit}, {rows_of[0].get('gpu', '')}", fontsize=10, weight="bold")
    draw_legend(drawn, [peer_name(name) for name in names], handles, (0.005, 1 - 0.25 / height), 7)
    return svg_of(drawn)


def about(results):
    """Returns where and how the lines were measured."""
    if results.ceilings:
        return header(results, results.ceilings[0]["date"], "")
    rows = [row for by_peer in results.rows.values() for row in by_peer.values()]
    of = lambda member: ", ".join(dict.fromkeys(part for row in rows if member in row for part in plain(str(row[member])).split(", ")))
    commands = dict.fromkeys(row["command"].strip() for row in rows if "command" in row)
    return [f"{of('gpu')}, driver {of('driver')}, {of('date')}; {of('version')}.", "",
            "<!-- not run: needs a GPU -->", "```sh", *commands, "```"]  # fmt: skip


def failed(results, section):
    """Returns a list of the peers of a section that were not timed, and why."""
    ids = {case.id for case in section.cases}
    found = {}
    for case_id, peer, text in results.errors:
        if case_id in ids:
            said = re.sub(r"(?<!\S)/\S*/", "", plain(text))  # without folders of a machine
            found.setdefault((peer, said[:160]), []).append(case_id)
    lines = [f"- {peer_name(peer)}, {len(of)} cases: {text}" for (peer, text), of in found.items()]
    return ["", "Not timed:", "", *lines] if lines else []


def sections(module, results):
    """Yields (section, the lines of its table), of those that have results."""
    for section in module.SECTIONS:
        made = section.table or TABLES.get(section.name, rates)
        if any(results.rows.get(case.id, {}) for case in section.cases) or made in (errors, errors_by_peer) and results.rmse:
            yield section, [*made(results, section), *failed(results, section)]


def write_page(module, results, folder=DOCS):
    """Writes the tables of a program into its page, and its plots next to the other pictures. Returns the sections."""
    page, pictures = folder / "papers" / f"{module.NAME}.md", folder / "assets" / "papers"
    done = []
    for section, lines in sections(module, results):
        if section.plots:
            pictures.mkdir(parents=True, exist_ok=True)
            picture = pictures / f"{module.NAME}-{section.name}.svg"
            picture.write_text(plot(results, section), encoding="utf-8")
            lines = [f"![{section.name}](../assets/papers/{picture.name})", "", *lines]
        put_between(page, "\n".join(lines).strip() + "\n", section.name)
        done.append(section.name)
    if done:
        put_between(page, "\n".join(about(results)) + "\n", "about")
    return done


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="a module of this folder")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--print", action="store_true", dest="prints", help="print the tables; write nothing")
    options = parser.parse_args(arguments)
    try:
        module, results = importlib.import_module(options.program), read_results(options.files)
        if options.prints:
            print("\n".join(line for section, lines in sections(module, results) for line in (f"## {section.name}", "", *lines, "")))
        else:
            print(f"docs/papers/{module.NAME}.md: {', '.join(write_page(module, results)) or 'no results'}")
    except (ResultError, OSError) as error:
        print(f"page.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
