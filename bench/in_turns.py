"""Times of functions that take turns on one GPU."""

import statistics

import torch


def milliseconds(function, calls=10):
    """Returns the time of a call, of several in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def in_turns(functions, rounds=9):
    """Returns the median milliseconds of each function. The first third of the rounds settles clocks."""
    found = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            found[name].append(milliseconds(function))
    return {name: statistics.median(times[rounds // 3 :]) for name, times in found.items()}
