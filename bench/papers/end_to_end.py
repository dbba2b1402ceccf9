"""Sections of docs/papers/end_to_end.md, whose results are those of bench/models.py: it times, this module has the tables."""

import types

import common  # finds the modules of bench/
from common import Section
from report import peer_name, table

import models

NAME = "end_to_end"
OURS, NONE = "attnc", "none"


def cases(prefix):
    return tuple(types.SimpleNamespace(id=case) for case in models.cases() if case.startswith(prefix))


def peers_of(results, section):
    """Returns who was timed in the cases of a section, attnc first."""
    found = dict.fromkeys(peer for case in section.cases for peer in results.rows.get(case.id, {}))
    return sorted(found, key=lambda peer: not peer.startswith(OURS))


def tokens(case):
    return case.id.rpartition("-")[2]


def finetuning(results, section):
    """Returns the tables of a training step: tokens a second, what of it is attention, and memory."""
    peers, speeds, memories = peers_of(results, section), [], []
    real = [peer for peer in peers if not peer.startswith(NONE)]
    for case in section.cases:
        rows = results.rows.get(case.id, {})
        ms = {peer: row["all_layers_ms"] for peer, row in rows.items()}
        cells = []
        for peer in real:
            rest = ms.get(NONE + peer[len(peer.partition(" ")[0]) :])
            share = f", {100 * (1 - rest / ms[peer]):.0f} %" if rest and peer in ms else ""
            cells.append(f"{rows[peer]['tokens_per_s']:.0f}{share}" if peer in rows else "")
        if any(cells):
            speeds.append([tokens(case), *cells])
        if any("peak_gb" in row for row in rows.values()):
            memories.append([tokens(case), *(f"{rows[peer]['peak_gb']:.1f}" if "peak_gb" in rows.get(peer, {}) else "" for peer in real)])
    names = [peer_name(peer) for peer in real]
    return [*table(["tokens", *(f"{name}, tokens/s" for name in names)], speeds), "",
            *table(["tokens", *(f"{name}, GB" for name in names)], memories)]  # fmt: skip


def generation(results, section):
    """Returns the table of generated tokens: milliseconds, and the ratio to attnc's."""
    peers, rows = peers_of(results, section), []
    for case in section.cases:
        found = results.rows.get(case.id, {})
        ours = found.get(OURS)
        cells = [f"{found[p]['ms']:.2f}" + (f" ({found[p]['ms'] / ours['ms']:.2f})" if ours and p != OURS else "") if p in found else ""
                 for p in peers]  # fmt: skip
        if any(cells):
            rows.append([tokens(case), *cells])
    return table(["tokens in the cache", *(f"{peer_name(peer)}, ms" for peer in peers)], rows)


SECTIONS = (
    Section("fine-tuning", cases("finetune-llama3"), table=finetuning),
    Section("generation", cases("generate-llama-"), table=generation),
)
