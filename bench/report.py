#!/usr/bin/env python3
"""Writes the tables and the bar chart of one benchmark run: reads result files (JSON lines), writes Markdown and SVG.

  python3 bench/report.py attnc.jsonl peers.jsonl --date 2026-11-20 --command "..." --table bench/README.md \\
      --plot bench/throughput.svg

The tables replace the text between the lines `<!-- results -->` and `<!-- /results -->` of the Markdown file, or, with
--name NAME, between `<!-- results NAME -->` and `<!-- /results NAME -->`. Without --table they are printed. The lowest
ms of each case and peer counts. All files must be of one run on one GPU. --plot needs matplotlib.
Exit codes: 0 done; 1 a file is malformed or cannot be read or written (nothing is written then); 2 wrong usage.
"""
import argparse
import datetime
import re
import sys

from bar_chart import bar_chart
from results import UNITS, Case, ResultError, read_results, unit_of

OURS = "attnc"
PEER_NAMES = {
    "attnc_e4m3": "attnc, e4m3",
    "attnc_e4m3_block": "attnc, e4m3, scales of blocks",
    "attnc_e4m3_block_rotated": "attnc, e4m3, scales of blocks, rotated",
    "attnc_e4m3_rotated": "attnc, e4m3, rotated",
    "attnc_fp16": "attnc, fp16",
    "attnc_contiguous": "attnc, contiguous",
    "attnc_lists": "attnc, PyTorch's lists",
    "attnc_partial": "attnc, lists without full blocks",
    "cudnn_bsa": "cuDNN, block sparse",
    "cudnn_flex": "cuDNN, flex",
    "cudnn_flex_varlen": "cuDNN, flex, packed",
    "fa2": "FlashAttention-2",
    "fa3": "FlashAttention-3",
    "fa3_e4m3": "FlashAttention-3, e4m3",
    "fa3_fp16": "FlashAttention-3, fp16",
    "fa3_varlen": "FlashAttention-3, packed",
    "fa3_vllm": "vLLM's FlashAttention-3",
    "fa3_vllm_e4m3": "vLLM's FlashAttention-3, e4m3",
    "fa3_vllm_fp16": "vLLM's FlashAttention-3, fp16",
    "fa4": "FlashAttention-4",
    "fa4_varlen": "FlashAttention-4, packed",
    "flashinfer": "FlashInfer",
    "flashmla": "FlashMLA",
    "flex": "FlexAttention",
    "flex_autotuned": "FlexAttention, autotuned",
    "flex_lists": "FlexAttention, the same lists",
    "flex_partial": "FlexAttention, without full blocks",
    "flex_vllm": "vLLM's FlexAttention",
    "flex_vllm_128": "the same, blocks of 128",
    "natten": "NATTEN",
    "natten_reference": "NATTEN's reference",
    "sdpa_cudnn": "cuDNN",
    "sdpa_efficient": "PyTorch's memory-efficient kernels",
    "sdpa_flash": "FlashAttention-2",
    "sdpa_itemized": "SDPA, itemized mask",
    "self_attention": "self attention",
    "triton_vllm": "vLLM's Triton kernel",
    "unfused_fp16": "unfused, fp16",
}
LIBRARIES = {"torch": "PyTorch", "cudnn": "cuDNN", "cuda": "CUDA"}
# Variants that do causal's work and more. Their overhead shows next to our own causal of the same shape.
BESIDE_CAUSAL = ("alibi", "prefix_lm", "softcap", "softcap_approx")


def peer_name(peer):
    return PEER_NAMES.get(peer, peer)


def plain(text):
    """Escapes text of any origin for one cell or list entry."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;").strip()


def table(heads, rows):
    """Returns a Markdown table: the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def span(values):
    low, high = round(min(values)), round(max(values))
    return f"{low}" if low == high else f"{low} to {high}"


def version(key, value):
    if key == "cudnn" and isinstance(value, int) and value >= 90000:  # 9.19.0 calls itself 91900
        value = f"{value // 10000}.{value // 100 % 100}.{value % 100}"
    return f"{LIBRARIES.get(key, key)} {plain(str(value))}"


def header(results, date, command):
    ceilings = results.ceilings
    about = [plain(ceilings[0]["peer"]) if ceilings else "GPU not recorded (no ceilings line)", date]
    if ceilings:
        known = ("id", "peer", "matmul_tflops", "copy_gbps", "date")
        about += [version(key, value) for key, value in ceilings[0].items() if key not in known]
    lines = [", ".join(about) + "."]
    for key, sentence in (("matmul_tflops", "A large bf16 matrix product in the same run: {} TFLOP/s."),
                          ("copy_gbps", "A large copy: {} GB/s.")):
        values = [row[key] for row in ceilings if key in row]
        lines += [sentence.format(span(values))] if values else []
    if command:
        lines += ["", "```sh", command.strip(), "```"]
    return lines


def figure(results, case, peer, unit):
    """Returns a cell: the figure, with its unit if that differs from the column's."""
    row = results.best(case.id, peer)
    if row is None:
        return "error" if results.failed(case.id, peer) else ""
    own = unit_of(row)
    return f"{row[own]:.1f}" if own == unit != "ms" else f"{row[own]:g} {UNITS[own]}"


def ratio(results, case, peer):
    """Returns our speedup over the peer, by time."""
    ours, theirs = results.best(case.id, OURS), results.best(case.id, peer)
    return f"{theirs['ms'] / ours['ms']:.2f}" if ours and theirs else ""


def first_call(results, case, peer):
    seconds = results.first_calls.get((case.id, peer))
    return "" if seconds is None else f"{seconds:.2f}"


def microseconds(results, case, peer, key):
    row = results.best(case.id, peer) or {}
    return f"{1000 * row[key]:.1f}" if key in row else ""


def section_unit(results, cases):
    units = [unit_of(row) for case in cases for row in results.rows[case.id].values()]
    return units[0] if units else "ms"


def kind_table(results, cases, with_first_call):
    """Returns the table of one kind (forward, backward, decode, ...): a row a case."""
    timed = [p for p in results.peers if any(results.best(c.id, p) or results.failed(c.id, p) for c in cases)]
    others = [peer for peer in timed if peer != OURS]
    unit = section_unit(results, cases)
    # Latencies of memory-bound cases: of one launch, and of one among many in a graph.
    times = {"ms": f"{OURS}, us", "graph_ms": "in a graph, us"} if unit == "gbps" else {}
    heads = [f"{cases[0].kind or 'case'}, {UNITS[unit]}", OURS]
    for peer in others:
        heads += [peer_name(peer), f"{OURS} / it"]
    heads += times.values()
    if with_first_call:
        heads += [f"first call, s: {peer_name(peer)}" for peer in [OURS, *others]]
    rows = []
    for case in cases:
        cells = [plain(case.name()), figure(results, case, OURS, unit)]
        for peer in others:
            cells += [figure(results, case, peer, unit), ratio(results, case, peer)]
        cells += [microseconds(results, case, OURS, key) for key in times]
        if with_first_call:
            cells += [first_call(results, case, peer) for peer in [OURS, *others]]
        rows.append(cells)
    return table(heads, rows)


def both_table(results, cases):
    """Tabulates cases that we ran forward and backward: both throughputs, and the ratios to every peer."""
    pairs = {}
    for case in cases:
        if case.shape and results.best(case.id, OURS):
            pairs.setdefault((case.variant, case.shape, case.rest), {})[case.kind] = case
    pairs = [(pair["forward"], pair["backward"]) for pair in pairs.values() if {"forward", "backward"} <= pair.keys()]
    if not pairs:
        return []
    heads, columns = ["forward and backward, TFLOP/s"], []  # a column: which of the pair, and the peer of a ratio
    for i, kind in enumerate(("forward", "backward")):
        timed = [p for p in results.peers if p != OURS and any(results.best(pair[i].id, p) for pair in pairs)]
        heads += [kind, *(f"{OURS} / {peer_name(peer)}" for peer in timed)]
        columns += [(i, OURS), *((i, peer) for peer in timed)]
    rows = []
    for pair in pairs:
        cells = [figure(results, pair[i], OURS, "tflops") if peer == OURS else ratio(results, pair[i], peer)
                 for i, peer in columns]
        rows.append([plain(pair[0].name()), *cells])
    return table(heads, rows)


def decode_relatives(case):
    batch, heads, kv_heads, q_len, *rest = case.shape
    if case.rest == "ragged":
        yield "equal lengths", (case.variant, case.shape, "equal")
    elif case.variant != "noop":
        yield "noop", ("noop", case.shape, case.rest)
    if q_len > 1:
        yield "1 query", (case.variant, (batch, heads, kv_heads, 1, *rest), case.rest)


def relatives(case):
    """Returns which of our own cases to compare a case with: (its name, its id's parts)."""
    if case.kind == "decode":
        yield from decode_relatives(case)
        return
    batch, heads, kv_heads, *lengths = case.shape
    if case.variant in BESIDE_CAUSAL:
        yield "causal", ("causal", case.shape, case.rest)
    if kv_heads != heads:
        yield f"{case.variant} with {heads} kv heads", (case.variant, (batch, heads, heads, *lengths), case.rest)
    if case.rest:
        yield f"without {case.rest}", (case.variant, case.shape, "")


def own_table(results, cases):
    """Tabulates our cases next to our own simpler ones, by throughput: prefix-LM has more pairs than causal."""
    ours = {}
    for case in cases:
        row = results.best(case.id, OURS)
        if case.shape and row and unit_of(row) != "ms":
            ours[case.kind, case.variant, case.shape, case.rest] = row
    rows = []
    for case in cases:
        if not case.shape:
            continue
        row = ours.get((case.kind, case.variant, case.shape, case.rest))
        for called, key in relatives(case):
            other = ours.get((case.kind, *key))
            if row and other and unit_of(row) == unit_of(other):
                share = row[unit_of(row)] / other[unit_of(row)]
                rows.append([plain(f"{case.kind} {case.name()}"), called, f"{share:.2f}"])
    return table([f"{OURS} next to itself", "relative to", "ratio"], rows) if rows else []


def accuracy_table(results):
    """Tabulates errors against fp64: a row a case and tensor. The last line of a case and peer counts."""
    peers = list(dict.fromkeys(peer for errors in results.rmse.values() for peer in errors if peer != OURS))
    heads = ["RMSE against fp64", OURS]
    for peer in peers:
        heads += [peer_name(peer), f"{OURS} / it"]
    rows = []
    for case_id, errors in results.rmse.items():
        for tensor in dict.fromkeys(tensor for own in errors.values() for tensor in own):
            ours = errors.get(OURS, {}).get(tensor)
            cells = ["" if ours is None else f"{ours:.3g}"]
            for peer in peers:
                theirs = errors.get(peer, {}).get(tensor)
                cells += ["" if theirs is None else f"{theirs:.3g}",
                          "" if theirs is None or ours is None else f"{ours / theirs:.2f}"]
            rows.append([plain(f"{tensor}: {Case.parse(case_id).name()}"), *cells])
    return table(heads, rows) if rows else []


def ordered_cases(results):
    """Returns the cases in the order of the files, with those of one shape together: a second cases.json may add to the
    first's."""
    cases = [Case.parse(case_id) for case_id in results.rows]
    groups = {}
    for case in cases:
        groups.setdefault((case.kind, case.shape, case.rest), []).append(case)
    return [case for group in groups.values() for case in group]


def report(results, date, command, with_first_call=False):
    """Returns the Markdown of a run."""
    cases = ordered_cases(results)
    lines = header(results, date, command)
    lines += ["", "Cases: variant, batch x heads(/kv heads) x length, head dim. A ratio above 1: attnc is faster."]
    both = both_table(results, cases)
    lines += ["", *both] if both else []
    for kind in dict.fromkeys(case.kind for case in cases):
        lines += ["", *kind_table(results, [case for case in cases if case.kind == kind], with_first_call)]
    own = own_table(results, cases)
    lines += ["", *own] if own else []
    accuracy = accuracy_table(results)
    lines += ["", "Errors against fp64; a ratio below 1: attnc is nearer to it.", "", *accuracy] if accuracy else []
    if results.errors:
        lines += ["", "Errors:", ""]
        lines += [f"- {plain(case_id)}, {plain(peer_name(peer))}: {plain(text)[:200]}"
                  for case_id, peer, text in dict.fromkeys(results.errors)]
    return "\n".join(lines) + "\n"


def between_markers(text, path, body, name=""):
    """Replaces the text between the markers. A marker is a line of its own, and occurs once."""
    marked = " ".join(["results", *name.split()])
    begin, end = f"<!-- {marked} -->", f"<!-- /{marked} -->"
    lines = text.split("\n")
    if lines.count(begin) != 1 or lines.count(end) != 1 or lines.index(begin) > lines.index(end):
        raise ResultError(f"{path}: expected one line `{begin}` and after it one line `{end}`")
    return "\n".join([*lines[: lines.index(begin) + 1], "", body, *lines[lines.index(end) :]])


def put_between(path, body, name=""):
    """Writes the body between the markers of a Markdown file."""
    with open(path, encoding="utf-8") as file:
        page = between_markers(file.read(), path, body, name)
    write(path, page)


def write_tables(program, about, tables_of, name, arguments=None):
    """The main part of programs whose result files have tables: tables_of(path) returns those of a file."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--table", metavar="FILE.md", help="Markdown file with the markers; without it: print")
    parser.add_argument("--name", default=name, help="of the markers; default: %(default)s")
    options = parser.parse_args(arguments)
    try:
        body = "\n".join(line for path in options.files for line in tables_of(path))
        if options.table:
            put_between(options.table, body, options.name)
        else:
            print(body)
    except (ResultError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    return 0


def chart(results, date):
    """Returns the run's TFLOP/s as SVG: cases in which we and another were timed, or all if there are none."""
    timed = {case: {p for p, row in results.rows[case.id].items() if "tflops" in row} for case in ordered_cases(results)}
    cases = [case for case, by in timed.items() if OURS in by and by - {OURS}] or list(timed)
    peers = [OURS] * (OURS in results.peers) + [peer for peer in results.peers if peer != OURS]
    bars = {case: {peer_name(p): results.rows[case.id][p]["tflops"] for p in peers
                   if "tflops" in results.rows[case.id].get(p, {})} for case in cases}
    gpu = results.ceilings[0]["peer"] if results.ceilings else "GPU not recorded"
    products = [row["matmul_tflops"] for row in results.ceilings if "matmul_tflops" in row]
    series = [peer_name(peer) for peer in peers if any(peer_name(peer) in group for group in bars.values())]
    return bar_chart(f"TFLOP/s on unmasked pairs, {gpu}, {date}", series, bars, max(products, default=None))


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main(arguments=None):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("files", nargs="+", help="result files of one run")
    args.add_argument("--date", type=datetime.date.fromisoformat, default=datetime.date.today(), help="default: today")
    args.add_argument("--command", default="", help="the exact command that measured, printed above the tables")
    args.add_argument("--only", type=re.compile, default="", help="regular expression on the case id")
    args.add_argument("--first-call", action="store_true", help="add columns with the best time of a first call")
    args.add_argument("--table", metavar="FILE.md", help="Markdown file with the markers; without it: print")
    args.add_argument("--name", default="", help="of the markers, where the file has tables of several runs")
    args.add_argument("--plot", metavar="FILE.svg", help="bar chart of the cases that have TFLOP/s")
    args = args.parse_args(arguments)
    try:
        results = read_results(args.files, args.only)
        if not results.rows and not results.rmse:
            raise ResultError(f"{', '.join(args.files)}: no results")
        text = report(results, args.date.isoformat(), args.command, args.first_call)
        svg = chart(results, args.date.isoformat()) if args.plot else ""
        if args.table:
            put_between(args.table, text, args.name)
        else:
            print(text, end="")
        if args.plot:
            write(args.plot, svg)
    except (ResultError, OSError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
