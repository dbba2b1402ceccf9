"""What the programs of this folder share: their options, sections of cases, a dry run, and the run itself.

A program has NAME, SECTIONS, and main(). Its cases are timed by speed.run(): results are compared with attnc's, then all
take short turns with L2 flushed; with --burst, the two clocks of speed.py. page.py makes tables, plots and pages.
"""

import argparse
import contextlib
import dataclasses
import pathlib
import re
import sys
import time
import typing

BENCH = pathlib.Path(__file__).resolve().parents[1]
for folder in (BENCH, BENCH.parent / "tools" / "python"):
    sys.path.insert(0, str(folder))
import clocks
import peers
import speed
import workloads
from results import read_results

DRY = {64: (40, 24)}  # documents of a dry run
OPTIONS = """
--out: a JSON line for each case and peer, written when the case is done; the same command goes on where the last one
stopped. --only: a regular expression on the ids of cases. --seconds: of the whole program, imports included; a case that lasts longer is given up. --part I/N: each
N-th case from the I-th on, for N cards. --burst: seconds of bursts under load, for joules and clocks. --list: the cases in
their order. --dry: all of it but the times, on tiny tensors of the CPU.
"""


@dataclasses.dataclass(frozen=True)
class Section:
    """A figure or a table of a paper: `name` in markers of its page, `cases`, and how page.py shows them: `table` is a
    function of (results, section), `plots` says what the x-axis is ("length", "variant"; "": no plot)."""

    name: str
    cases: tuple
    plots: str = ""
    table: typing.Callable | None = None


def parsed(arguments, about, dry_out="/dev/null", **defaults):
    """Returns the options of a program. A dry run needs no --out."""
    dry, rest = argparse.ArgumentParser(add_help=False, allow_abbrev=False), list(sys.argv[1:] if arguments is None else arguments)
    dry.add_argument("--dry", action="store_true")
    is_dry, rest = dry.parse_known_args(rest)
    if is_dry.dry and "--out" not in rest:
        rest += ["--out", dry_out]
    options = speed.parsed(rest, about + OPTIONS, **defaults)
    options.is_dry = is_dry.dry
    return options


def tiny(case):
    """Returns a case of the same kind that a CPU computes at once."""
    if hasattr(case, "tiny"):
        return case.tiny()
    kv_heads = 4 if case.heads == case.kv_heads else 2
    width_v = 8 if case.is_latent else 16
    return dataclasses.replace(case, batch=1, heads=4, kv_heads=kv_heads, length=64, width=16, width_v=width_v, page=min(case.page, 16))


class DryOperands(speed.Operands):
    def __init__(self, case):
        super().__init__(case, "cpu")

    def replay(self, call):
        return call


def cases_of(sections, options):
    """Returns the cases of all sections that the options leave, each once."""
    cases = dict.fromkeys(case for section in sections for case in section.cases)
    cases = list(dict.fromkeys(map(tiny, cases)) if options.is_dry else cases)
    return [case for case in cases if re.search(options.only, case.id)][options.cases]


def start(options):
    """Returns the GPU, or what stands in for it."""
    if not options.is_dry:
        return clocks.Gpu()
    import torch

    torch._dynamo.config.disable = True
    workloads.DOCUMENTS.update(DRY)
    return clocks.Dry()


def run(sections, options, extra=(), before=None):
    """Measures the cases of sections, with these peers besides those of the options. `before` gets all cases first. Returns
    the GPU; None: only listed."""
    cases = cases_of(sections, options)
    if options.list:
        print("\n".join(case.id for case in cases))
        return None
    modules = [*peers.found(options.peers), *extra]
    if speed.OURS not in [peer.NAME for peer in modules]:
        sys.exit("attnc is not among the peers, and results are compared with its: set ATTNC_LIBRARY")
    with peers.told("start of the GPU"):
        gpu = start(options)
    if before:
        with peers.told("kernels of all cases"):
            before(cases)
    end = options.begin + options.seconds
    options.seconds = end - time.monotonic()
    operands_of = DryOperands if options.is_dry else speed.Operands
    speed.run(gpu, cases, modules, options, operands_of)
    options.seconds = end - time.monotonic()
    return gpu


@contextlib.contextmanager
def in_time(options):
    """Gives up what the block does when the time is up that run() left."""
    try:
        with speed.within(options.seconds, speed.TimeIsUp()):
            yield
    except speed.TimeIsUp:
        print("time is up in the table of errors: the same command goes on there", flush=True)


def done(options):
    """Returns the results of earlier runs."""
    return read_results([options.out] if pathlib.Path(options.out).is_file() else [])


class Extra:
    """A peer that is only one of a program's sections: another way to call a peer."""

    def __init__(self, name, like, serves, ways, is_other=False):
        self.NAME, self.version, self.serves, self.ways = name, like.version, serves, ways
        self.is_heads_last, self.is_other = like.is_heads_last, is_other
