"""Two clocks for functions on one GPU: under load, with joules of a call and SM clocks, and rested, with L2 flushed.

Functions enqueue work. A GPU that computes for seconds is bound by its limit of power, a rested one is not.
"""

import collections
import contextlib
import ctypes
import dataclasses
import datetime
import json
import pathlib
import shlex
import statistics
import sys
import threading
import time
import types

STRIDE, QUEUED = 32, 96  # calls between two events; calls in the queue at most: a full one lets the GPU idle
SAMPLE_S = 0.01
REST_S, GAP_S, SHORT_MS, SHORTS = 0.4, 0.05, 5, 9  # of the rested clock: pauses, the length of a burst, their number


@dataclasses.dataclass
class Sample:
    seconds: float
    joules: float
    mhz: float


@dataclasses.dataclass
class Burst:
    ms: float
    joules: float  # of a call
    mhz: float


class Nvml:
    """NVML's energy counter and SM clock of one GPU."""

    def __init__(self, uuid):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByUUID", f"GPU-{uuid}".encode(), ctypes.byref(self.device))

    def _call(self, name, *arguments):
        if code := getattr(self.library, name)(*arguments):
            raise RuntimeError(f"{name} returned {code}")

    def joules(self):
        """Returns the energy since the driver was loaded. The counter moves about every 0.1 s."""
        millijoules = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self.device, ctypes.byref(millijoules))
        return millijoules.value / 1000

    def mhz(self):
        clock = ctypes.c_uint()
        self._call("nvmlDeviceGetClockInfo", self.device, 1, ctypes.byref(clock))  # 1: NVML_CLOCK_SM
        return clock.value

    def driver(self):
        text = ctypes.create_string_buffer(80)
        self._call("nvmlSystemGetDriverVersion", text, len(text))
        return text.value.decode()


class Dry:
    """Stands in for a GPU where a benchmark is only tried: the clock is the host's, and counts nothing else."""

    name, driver, torch = "none", "none", types.SimpleNamespace(__version__="none")
    now = mark = staticmethod(time.monotonic)
    pause = wait = staticmethod(lambda _: None)

    def __init__(self):
        self.marks = collections.deque()

    def between(self, start, end):
        return max(1000 * (end - start), 1e-3)

    def is_alive(self):
        return True

    def flush(self):
        pass


class Gpu:
    """Events, L2 and counters of the current CUDA device."""

    def __init__(self):
        import torch

        self.torch = torch
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.name, self.nvml = properties.name, Nvml(properties.uuid)
        self.driver = self.nvml.driver()
        self.marks = collections.deque()  # in the queue, the oldest first
        self.lines = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    now = staticmethod(time.monotonic)
    pause = staticmethod(time.sleep)

    def mark(self):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark):
        mark.synchronize()

    def between(self, start, end):
        return start.elapsed_time(end)

    def flush(self):
        self.lines.zero_()

    def is_alive(self):
        """Whether the GPU computes: after a fault of a kernel it refuses all work of the process."""
        try:
            self.torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True

    @contextlib.contextmanager
    def watch(self):
        """Gives the list to which a thread adds samples until the block ends."""
        samples, is_done = [], threading.Event()

        def sample():
            while not is_done.wait(SAMPLE_S):
                samples.append(Sample(time.monotonic(), self.nvml.joules(), self.nvml.mhz()))

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield samples
        finally:
            is_done.set()
            thread.join()


def about(gpu):
    """Returns what a line of results says of its run: GPU, driver, torch, date and command."""
    return {
        "gpu": gpu.name, "driver": gpu.driver, "torch": gpu.torch.__version__, "date": datetime.date.today().isoformat(),
        "command": shlex.join([pathlib.Path(sys.executable).name, *sys.argv]),
    }  # fmt: skip


def enqueue(gpu, function, calls):
    """Calls the function. With earlier ones, at most QUEUED calls are in the queue."""
    for call in range(1, calls + 1):
        function()
        if call % STRIDE == 0 or call == calls:
            gpu.marks.append(gpu.mark())
            if len(gpu.marks) == QUEUED // STRIDE:
                gpu.wait(gpu.marks.popleft())


def milliseconds(gpu, function, calls):
    """Returns the time of a call, of several in a row."""
    start = gpu.mark()
    enqueue(gpu, function, calls)
    end = gpu.mark()
    gpu.wait(end)
    return gpu.between(start, end) / calls


def watts(samples):
    """Returns the power between the first and the last move of the counter; None: it moved less than twice."""
    moves = [now for before, now in zip(samples, samples[1:]) if now.joules != before.joules]
    if len(moves) < 2:
        return None
    return (moves[-1].joules - moves[0].joules) / (moves[-1].seconds - moves[0].seconds)


def under_load(gpu, function, ms, seconds):
    """Returns a Burst of this length, behind a quarter of it that settles the clock. `ms`: about the time of a call."""
    settled = milliseconds(gpu, function, max(2, round(250 * seconds / ms)))  # the host may have delayed the first calls
    calls = max(4, round(1000 * seconds / settled))
    with gpu.watch() as samples:
        taken = milliseconds(gpu, function, calls)
    power = watts(samples)
    if power is None:
        raise RuntimeError(f"NVML's energy counter moved less than twice in {calls * taken / 1000:.2f} s: take longer bursts")
    return Burst(taken, power * taken / 1000, statistics.mean(sample.mhz for sample in samples))


def rested(gpu, function, ms):
    """Returns the median time of a call, of short bursts after pauses, with L2 flushed before each burst."""
    calls, times = max(1, round(SHORT_MS / ms)), []
    gpu.pause(REST_S)
    for _ in range(SHORTS):
        gpu.pause(GAP_S)
        gpu.flush()
        times.append(milliseconds(gpu, function, calls))
    return statistics.median(times)


def in_turns(gpu, functions, rounds=SHORTS, burst_ms=SHORT_MS):
    """Returns {name: median ms of a call} of functions that take short turns, with L2 flushed before each burst."""
    calls = {name: max(1, round(burst_ms / milliseconds(gpu, function, 5))) for name, function in functions.items()}
    order, times = list(functions), {name: [] for name in functions}
    for turn in range(rounds):
        for name in order if turn % 2 == 0 else order[::-1]:
            gpu.flush()
            times[name].append(milliseconds(gpu, functions[name], calls[name]))
    return {name: statistics.median(taken) for name, taken in times.items()}


def abba(gpu, functions, seconds, rounds):
    """Returns ({name: [Burst, ...]}, {name: rested ms}) of functions that take turns; each second round goes backwards."""
    about = {name: milliseconds(gpu, function, 5) for name, function in functions.items()}
    cool = {name: rested(gpu, function, about[name]) for name, function in functions.items()}
    order, bursts = list(functions), {name: [] for name in functions}
    enqueue(gpu, functions[order[0]], round(1000 / about[order[0]]))  # so that the first burst meets a warm GPU
    for turn in range(rounds):
        for name in order if turn % 2 == 0 else order[::-1]:
            bursts[name].append(under_load(gpu, functions[name], about[name], seconds))
    return bursts, cool


def means(gpu, functions, seconds, rounds, out, name_as="kind", **row):
    """Returns {name: mean ms of a call} of functions that take turns under load. Writes a line of results for each: its name, `row`,
    ms, joules of a call, and about()."""
    bursts, _ = abba(gpu, functions, seconds, rounds)
    found = {name: statistics.mean(burst.ms for burst in taken) for name, taken in bursts.items()}
    for name, ms in found.items():
        joules = statistics.mean(burst.joules for burst in bursts[name])
        line = {name_as: name, **row, "ms": round(ms, 4), "joules": round(joules, 4), **about(gpu)}
        print(json.dumps(line), file=out, flush=True)
    return found
