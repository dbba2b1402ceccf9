#!/usr/bin/env python3
"""Makes tables out of result lines of speed.py: of all cases by both clocks, a short one, and the rows that are behind.

  python3 bench/speed_report.py FILE.jsonl [--table bench/README.md] [--short README.md]

Without --table and --short: prints all three. --table: puts the table of all cases and the rows that are behind between
the lines `<!-- results speed -->` and `<!-- /results speed -->` of a file; --short: the short table, in the same way.
A ratio is of times; above 1 attnc is faster, and below it the row is behind. J are joules of a call.
Exit codes: 0 done; 1 a file cannot be read, or its figures contradict each other.
"""

import argparse
import math
import sys

from report import OURS, ordered_cases, peer_name, plain, put_between, table
from results import ResultError, read_results

CLOCKS = {"under load": "ms", "rested": "rested_ms"}
MEMBERS = ("version", "tflops", "rested_ms", "rested_tflops", "joules", "mhz", "rounds", "gpu", "driver", "date", "command")
FLEX = "flex"
SHORT = ("b2h16k16-q8192k8192-d128", "b2h32k32-q8192k8192-d64")


def read_speed(paths):
    """Returns the results of files, checked. Raises ResultError."""
    results = read_results(paths)
    if not any(results.rows.values()):
        raise ResultError(f"{', '.join(map(str, paths))}: no results")
    for case_id, rows in results.rows.items():
        for peer, row in rows.items():
            if missing := [member for member in MEMBERS if member not in row]:
                raise ResultError(f'{case_id}, {peer}: no "{missing[0]}": not a line of speed.py')
        # TFLOP/s times ms is the work, which is that of the case: figures that were exchanged would show here.
        clocks = ("tflops", "ms"), ("rested_tflops", "rested_ms")
        work = [row[rate] * row[ms] for row in rows.values() for rate, ms in clocks]
        if not all(math.isclose(one, work[0], rel_tol=0.02) for one in work):
            raise ResultError(f"{case_id}: TFLOP/s do not belong to the times of all peers and clocks")
        if len({row["rounds"] for row in rows.values()}) > 1:
            raise ResultError(f"{case_id}: peers have different numbers of rounds")
    return results


def ratio(rows, peer, clock):
    """Returns our speedup over a peer in a case, by time."""
    return rows[peer][CLOCKS[clock]] / rows[OURS][CLOCKS[clock]]


def best_other(rows, clock, without=()):
    """Returns who is the fastest besides us in a case; None: nobody else was timed."""
    return min((peer for peer in rows if peer != OURS and peer not in without), default=None,
               key=lambda peer: rows[peer][CLOCKS[clock]])  # fmt: skip


def behind(results):
    """Returns (case id, clock, ratio, the best other) where we are slower than it, the slowest first."""
    found = []
    for case_id, rows in results.rows.items():
        for clock in CLOCKS if OURS in rows else ():
            if (other := best_other(rows, clock)) and (own := ratio(rows, other, clock)) < 1:
                found.append((case_id, clock, own, other))
    return sorted(found, key=lambda row: row[2])


def figures(results, case, peer):
    row = results.best(case.id, peer)
    if row is None:
        return "error" if results.failed(case.id, peer) else ""
    return f"{row['tflops']:.0f} / {row['rested_tflops']:.0f}, {row['joules']:.3g} J"


def against(rows, clock, but=()):
    """Returns a cell: our ratio to the best other, and who that is."""
    other = best_other(rows, clock, but) if OURS in rows else None
    return f"{ratio(rows, other, clock):.2f} ({peer_name(other)})" if other else ""


def kind_table(results, cases):
    """Returns the table of one kind: each peer's figures, and our ratio to the best other by both clocks."""
    is_here = lambda peer: any(results.best(case.id, peer) or results.failed(case.id, peer) for case in cases)
    others = [peer for peer in results.peers if peer != OURS and is_here(peer)]
    heads = [f"{cases[0].kind}, TFLOP/s under load / rested", OURS, *(f"{OURS} / best, {clock}" for clock in CLOCKS)]
    rows = []
    for case in cases:
        cells = [against(results.rows[case.id], clock) for clock in CLOCKS]
        rows.append([plain(case.name()), figures(results, case, OURS), *cells, *(figures(results, case, p) for p in others)])
    return table([*heads, *map(peer_name, others)], rows)


def header(results):
    """Returns where and how the lines were measured."""
    rows = [row for by_peer in results.rows.values() for row in by_peer.values()]
    of = lambda member: ", ".join(dict.fromkeys(plain(str(row[member])) for row in rows))
    commands = dict.fromkeys(row["command"].strip() for row in rows)
    return [f"{of('gpu')}, driver {of('driver')}, {of('date')}; {of('version')}.", "", "```sh", *commands, "```"]


def behind_lines(results):
    rows = behind(results)
    if not rows:
        return ["No row is behind."]
    return ["Rows that are behind the best other:", "",
            *(f"- {case_id}, {clock}: {own:.2f} of {peer_name(other)}" for case_id, clock, own, other in rows)]  # fmt: skip


def whole(results):
    """Returns the Markdown of all cases."""
    cases = ordered_cases(results)
    lines = header(results)
    for kind in dict.fromkeys(case.kind for case in cases):
        lines += ["", *kind_table(results, [case for case in cases if case.kind == kind])]
    lines += ["", *behind_lines(results)]
    if results.errors:
        lines += ["", "Not timed:", ""]
        lines += [f"- {case_id}, {peer_name(peer)}: {plain(text)[:200]}"
                  for case_id, peer, text in dict.fromkeys(results.errors)]
    return "\n".join(lines) + "\n"


def short(results):
    """Returns the Markdown of the short table: TFLOP/s under load at 8192 tokens, forward and backward."""
    heads = ["TFLOP/s under load"]
    for kind in ("forward", "backward"):
        heads += [kind, f"{OURS} / {peer_name(FLEX)}", f"{OURS} / best other library"]
    names, cells = {}, {}
    for case in ordered_cases(results):
        rows = results.rows[case.id]
        for shape in SHORT:
            if OURS in rows and case.id.startswith(f"{case.kind}-{case.variant}-{shape}"):
                key = shape, case.variant, case.rest
                names[key] = plain(case.name())
                flex = f"{ratio(rows, FLEX, 'under load'):.2f}" if FLEX in rows else ""
                cells[key, case.kind] = [f"{rows[OURS]['tflops']:.0f}", flex, against(rows, "under load", (FLEX,))]
    blank = [""] * 3
    rows = [[name, *cells.get((key, "forward"), blank), *cells.get((key, "backward"), blank)] for key, name in names.items()]
    return "\n".join(table(heads, rows)) + "\n"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--table", metavar="FILE.md")
    parser.add_argument("--short", metavar="FILE.md")
    options = parser.parse_args(arguments)
    try:
        results = read_speed(options.files)
        if options.table:
            put_between(options.table, whole(results), "speed")
        if options.short:
            put_between(options.short, short(results), "speed")
        if not options.table and not options.short:
            print(f"{short(results)}\n{whole(results)}", end="")
    except (ResultError, OSError) as error:
        print(f"speed_report.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
