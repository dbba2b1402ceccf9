"""Reads and checks the result files of a benchmark run: takes JSON lines, returns the best figure per case and peer.

A line is {"id", "peer", "ms", "tflops", "gbps" or "images_per_s", "first_call_s", "graph_ms", ...}, or {"id", "peer", "rmse": {tensor:
error}}, or {"id", "peer", "error"}, or a "ceilings" line that names the GPU and the libraries. Nothing is compared or
printed here.
"""
import dataclasses
import json
import math
import re

UNITS = {"tflops": "TFLOP/s", "gbps": "GB/s", "images_per_s": "images/s", "ms": "ms"}
CASE_ID = re.compile(
    r"(?P<kind>\w+)-(?P<variant>\w+)-b(?P<batch>\d+)h(?P<heads>\d+)k(?P<kv_heads>\d+)"
    r"-q(?P<q_len>\d+)k(?P<kv_len>\d+)-d(?P<head_dim>\d+)(?:-(?P<rest>.+))?"
)


class ResultError(Exception):
    """An error in a file. The message begins with file and line."""


@dataclasses.dataclass(frozen=True)
class Case:
    """The parts of a case's id. An id of another form is also a case: its `shape` is None and its name the id."""

    id: str
    kind: str = ""
    variant: str = ""
    shape: tuple | None = None  # batch, heads, kv_heads, q_len, kv_len, head_dim
    rest: str = ""

    @staticmethod
    def parse(case_id):
        match = CASE_ID.fullmatch(case_id)
        if not match:
            return Case(case_id)
        sizes = ("batch", "heads", "kv_heads", "q_len", "kv_len", "head_dim")
        return Case(case_id, match["kind"], match["variant"], tuple(int(match[s]) for s in sizes), match["rest"] or "")

    def heads(self):
        _, heads, kv_heads, *_ = self.shape
        return f"{heads}" if heads == kv_heads else f"{heads}/{kv_heads}"

    def length(self):
        q_len, kv_len = self.shape[3:5]
        return f"{q_len}" if q_len == kv_len else f"(q {q_len}, kv {kv_len})"

    def name(self):
        """Returns variant, batch x heads(/kv heads) x length, head dim."""
        if not self.shape:
            return self.id
        page = re.fullmatch(r"p(\d+)", self.rest)
        rest = f", page {page[1]}" if page else f", {self.rest}" if self.rest else ""
        return f"{self.variant}, {self.shape[0]} x {self.heads()} x {self.length()}, d {self.shape[5]}{rest}"


@dataclasses.dataclass
class Results:
    rows: dict = dataclasses.field(default_factory=dict)  # case id -> peer -> the line with the lowest ms
    first_calls: dict = dataclasses.field(default_factory=dict)  # (case id, peer) -> lowest first_call_s
    rmse: dict = dataclasses.field(default_factory=dict)  # case id -> peer -> {tensor: error}
    errors: list = dataclasses.field(default_factory=list)  # (case id, peer, text)
    peers: list = dataclasses.field(default_factory=list)  # in the order they first appear
    ceilings: list = dataclasses.field(default_factory=list)

    def best(self, case_id, peer):
        """Returns the line with the lowest ms, or None."""
        return self.rows.get(case_id, {}).get(peer)

    def failed(self, case_id, peer):
        return any(error[:2] == (case_id, peer) for error in self.errors)


def unit_of(row):
    """Returns the key of a line's figure: its throughput if it has one, else its time."""
    return next(unit for unit in UNITS if unit in row)


def check_line(row):
    """Returns the error of a line, or None."""
    if not isinstance(row, dict):
        return "a result is a JSON object"
    for key in ("id", "peer"):
        if not isinstance(row.get(key), str):
            return f'no "{key}"'
    if row["id"] != "ceilings" and not {"ms", "rmse", "error"} & row.keys():
        return 'neither "ms" nor "error"'
    rmse = row.get("rmse", {})
    if not isinstance(rmse, dict):
        return f'"rmse" is {json.dumps(rmse)}, expected an object'
    figures = {key: row.get(key, 1) for key in (*UNITS, "first_call_s", "graph_ms", "matmul_tflops", "copy_gbps")}
    for key, value in {**figures, **rmse}.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        if not number or value < 0 or (value == 0 and key != "first_call_s"):
            return f'"{key}" is {json.dumps(value)}, expected a positive number'
    return None


def identity(ceilings):
    """Returns GPU and versions of a ceilings line."""
    return {key: value for key, value in ceilings.items() if key not in ("matmul_tflops", "copy_gbps")}


def agree(one, other):
    """Whether two ceilings lines may be of one run. Peers may name libraries of their own."""
    one, other = identity(one), identity(other)
    return all(one[key] == other[key] for key in one.keys() & other.keys())


def add_line(results, row):
    case_id, peer = row["id"], row["peer"]
    if case_id == "ceilings":
        if any(not agree(row, known) for known in results.ceilings):
            return "another GPU or other libraries than before: not the results of one run"
        results.ceilings.append(row)
        return None
    if "rmse" in row:
        results.rmse.setdefault(case_id, {})[peer] = row["rmse"]
        return None
    if "error" in row:
        results.errors.append((case_id, peer, str(row["error"])))
        if Case.parse(case_id).kind == "accuracy":  # not timed
            return None
    if peer not in results.peers:
        results.peers.append(peer)
    best_of_case = results.rows.setdefault(case_id, {})
    if "error" in row:
        return None
    if peer not in best_of_case or row["ms"] < best_of_case[peer]["ms"]:
        best_of_case[peer] = row
    if "first_call_s" in row:
        first = row["first_call_s"]
        results.first_calls[case_id, peer] = min(first, results.first_calls.get((case_id, peer), first))
    return None


def read_results(paths, only=""):
    """Reads the files of one run. `only` is a regular expression on the case id. Raises ResultError."""
    results = Results()
    for path in paths:
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ResultError(f"{path}: cannot read it: {error}") from None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ResultError(f"{path}:{number}: not JSON: {error}") from None
            wrong = check_line(row)
            if not wrong and (row["id"] == "ceilings" or re.search(only, row["id"])):
                wrong = add_line(results, row)
            if wrong:
                raise ResultError(f"{path}:{number}: {wrong}")
    return results
