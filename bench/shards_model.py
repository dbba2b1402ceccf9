"""Transfers between ranks, modelled from what each of them did by itself.

A rank's steps are in the order of its stream: a number, the ms that it computed; Begin, where its next transfer is
enqueued; Wait, where its stream waits for one. The n-th Begin of all ranks is one all-to-all. It begins when all ranks have
come to it and the one before is over, and lasts for a rank as long as the larger of its bytes out and in takes. The model
leaves out what transfers cost the attention next to them: SMs of NCCL's kernels, and memory bandwidth."""

import typing

LATENCY = 10e-6  # s of a transfer besides its bytes, as ShardOptions::latency


class Begin(typing.NamedTuple):
    sent: int  # bytes
    received: int


class Wait(typing.NamedTuple):
    transfer: int  # number, from 0


def computed(steps):
    """Returns the ms that a rank computes."""
    return sum(step for step in steps if not isinstance(step, (Begin, Wait)))


def received(steps):
    return sum(step.received for step in steps if isinstance(step, Begin))


def ends(ranks, bandwidth, latency=LATENCY):
    """Returns when each rank is done, in ms, by the steps of all ranks and the bytes/s of each in both directions."""
    counts = {sum(isinstance(step, Begin) for step in steps) for steps in ranks}
    if len(counts) != 1:
        raise ValueError(f"ranks begin different numbers of transfers: {sorted(counts)}")
    steps, now, free = [iter(steps) for steps in ranks], [0.0] * len(ranks), 0.0
    done = [[] for _ in ranks]
    for _ in range(counts.pop() + 1):
        began = []  # of the next transfer, by rank; in the last round none are left
        for rank, own in enumerate(steps):
            for step in own:
                if isinstance(step, Begin):
                    began.append(step)
                    break
                now[rank] = max(now[rank], done[rank][step.transfer]) if isinstance(step, Wait) else now[rank] + step
        if began:
            start = max(*now, free)
            for of_rank, step in zip(done, began):
                of_rank.append(start + 1e3 * (latency + max(step.sent, step.received) / bandwidth))
            free = max(of_rank[-1] for of_rank in done)
    return now
