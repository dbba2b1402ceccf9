#!/usr/bin/env python3
"""Compares attention over several GPUs of one host with that of one GPU, and times both.

  ATTNC_LIBRARY=build/libattnc.so python3 bench/shards.py [--world 4] [--rows 16384,65536] > results.jsonl

First out and gradients of small problems are compared, RMS of the difference in units of one GPU's. Then come ms of one GPU
for the whole, t1, and of the slowest of all, t. The efficiency is t1 / (world t). `rows` are those of a rank; [1, 16,
world * rows, 128] in bf16.

Ways: `keys` travel around (also `overlapped` or `joined`, whichever the plan does not choose), the ranks divide `heads`, and
`context_parallel` of PyTorch over cuDNN's attention, causal only; its t1 is cuDNN's. Settings of NCCL are measured one after
the other, each in processes of its own: transfers compete with the attention for SMs. A setting that fails or hangs is a line
with its error. Needs torch with NCCL, and as many GPUs.
bench/shards_report.py makes tables of the lines."""

import argparse
import datetime
import functools
import json
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools/python"))
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

import attnc.torch as whole
from attnc.torch.distributed import ShardPlan, flex_attention, shard

HEADS, WIDTH = 16, 128
ALLOWED = 1e-2  # of bf16
PADDING = 100  # last rows, which checks leave out
OVERLAP = {"overlapped": True, "joined": False}  # ways of keys; the one that a plan takes by prediction is `keys`
SECONDS_OF_SETTING = 250  # then its processes are ended

# How NCCL shares the GPU with the attention. `priority`: its kernels go before others that wait; `ctas`: the most SMs that
# they take. No policy of NCCL 2.28 is here: with them copy
# engines serve collectives over registered memory, not sends and receives.
SETTINGS = {
    "default": {},
    "ctas 16": {"ctas": 16},
    "ctas 8": {"ctas": 8},
    "priority": {"priority": True},
    "priority, ctas 8": {"priority": True, "ctas": 8},
}


def causal(length, device, heads=HEADS):
    return None, lambda b, h, q, k: q >= k, []


def documents(length, device, heads=HEADS):
    """Eight causal documents of random lengths."""
    starts = torch.zeros(length, dtype=torch.int32, device=device)
    starts[random.Random(2).sample(range(1, length), 7)] = 1
    of = starts.cumsum(0, dtype=torch.int32)
    return None, lambda b, h, q, k: (of[q] == of[k]) & (q >= k), []


def window(length, device, heads=HEADS):
    return None, lambda b, h, q, k: (q >= k) & (q - k < 1024), []


def window4096(length, device, heads=HEADS):
    return None, lambda b, h, q, k: (q >= k) & (q - k < 4096), []


def prefix(length, device, heads=HEADS):
    """All see the first eighth."""
    return None, lambda b, h, q, k: (q >= k) | (k < length // 8), []


def video(length, device, heads=HEADS):
    """Frames of 32 x 64 tokens, of which each sees 5 x 13 x 13: ranks have whole frames, and kernels by boxes."""
    near = lambda x, y, most: (x - y).abs() <= most
    return None, lambda b, h, q, k: (
        near(q // 2048, k // 2048, 2) & near(q // 64 % 32, k // 64 % 32, 6) & near(q % 64, k % 64, 6)
    ), []


def alibi(length, device, heads=HEADS):
    slopes = torch.full((heads,), 0.01, device=device, requires_grad=True)
    return lambda s, b, h, q, k: s + slopes[h] * (k - q), lambda b, h, q, k: q >= k, [slopes]


def softcap(length, device, heads=HEADS):
    return lambda s, b, h, q, k: 5 * torch.tanh(s / 5), None, []


def padded(length, device, heads=HEADS):
    """The last rows and keys are padding, by addition."""
    first = length - PADDING
    return lambda s, b, h, q, k: s + torch.where(q < first, 0.0, -1e9) + torch.where(k < first, 0.0, -1e9), None, []


def operands(length, device):
    generator = torch.Generator(device).manual_seed(1)
    return [
        torch.randn(1, HEADS, length, WIDTH, generator=generator, device=device, dtype=torch.bfloat16) for _ in range(4)
    ]


def ways(make, length, rank, world, groups, device, overlap=None):
    """Returns (of all, of this rank): a function that computes out, the operands, dout, and what learns."""
    score_mod, mask_mod, learned = make(length, device)
    plan = ShardPlan(mask_mod, (1, HEADS, HEADS, length, length), world, head_groups=groups, overlap=overlap)
    mask = mask_mod and whole.create_block_mask(mask_mod, None, None, length, length, device=device)
    *inputs, dout = operands(length, device)
    mine = [shard(x, plan, rank) for x in inputs]
    of_all = functools.partial(whole.flex_attention, score_mod=score_mod, block_mask=mask)
    ours = functools.partial(flex_attention, score_mod=score_mod, block_mask=mask_mod, plan=plan)
    return plan, (of_all, inputs, dout, learned), (ours, mine, shard(dout, plan, rank), learned)


def train(run, inputs, dout, learned):
    """Returns out, and the gradients of the operands and of what learns."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    out = run(*inputs)
    return out, *torch.autograd.grad(out, [*inputs, *learned], dout)


def check(make, length, rank, world, groups, overlap, device):
    plan, of_all, ours = ways(make, length, rank, world, groups, device, overlap)
    of_all[2][:, :, -PADDING:] = 0
    counts = (plan.rows(rank) < length - PADDING).to(device).unsqueeze(1)
    ours[2].mul_(counts)
    worst = torch.zeros((), device=device)
    for at, (found, wanted) in enumerate(zip(train(*ours), train(*of_all))):
        wanted = (shard(wanted, plan, rank) if at < 4 else wanted).detach().double()
        if at == 0:
            found, wanted = found * counts, wanted * counts
        error = (found.double() - wanted).square().mean().sqrt() / wanted.square().mean().sqrt()
        worst = torch.maximum(worst, error.float())
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    report_error(rank, {"check": make.__name__, "rows": length, "head_groups": groups, "overlap": overlap}, worst.item())


def report_error(rank, what, error):
    say(rank, {**what, "error": round(error, 4), **({} if error <= ALLOWED else {"wrong": True})})


def say(rank, line):
    if rank == 0:
        print(json.dumps(line), flush=True)


class Clock:
    """Marks on the current stream of a GPU, or times of the host."""

    def __init__(self, device):
        self.is_gpu = device.type == "cuda"

    def mark(self):
        if not self.is_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin, end):
        """Returns the ms between two marks that have passed."""
        return begin.elapsed_time(end) if self.is_gpu else 1e3 * (end - begin)

    def wait(self):
        if self.is_gpu:
            torch.cuda.synchronize()


def milliseconds(run, device):
    """Returns the time of a call, of the slowest rank, after two calls that warm up."""
    clock = Clock(device)

    def each(count):
        clock.wait()
        dist.barrier()
        begin = clock.mark()
        for _ in range(count):
            run()
        end = clock.mark()
        clock.wait()
        return clock.between(begin, end) / count

    run(), run()
    count = torch.tensor(max(1, min(20, int(300 / each(1)))), device=device)
    dist.all_reduce(count, dist.ReduceOp.MIN)
    time = torch.tensor(each(int(count)), device=device)
    dist.all_reduce(time, dist.ReduceOp.MAX)
    return time.item()


def joins(plan):
    return plan.joins(0, 1, HEADS, HEADS, 2 * WIDTH, WIDTH, 2)


def times_of(run, inputs, dout, learned, device):
    """Returns ms of the forward pass, and of both passes."""
    forward, training = functools.partial(run, *inputs), functools.partial(train, run, inputs, dout, learned)
    return milliseconds(forward, device), milliseconds(training, device)


def measure(make, length, rank, world, way, setting, known, device):
    """Measures one GPU unless its times are `known`: a dict by mask and length."""
    groups = world if way == "heads" else 1
    plan, of_all, ours = ways(make, length, rank, world, groups, device)
    if way in OVERLAP:
        if joins(plan) != OVERLAP[way]:
            return  # by prediction it is what `keys` does
        plan, of_all, ours = ways(make, length, rank, world, groups, device, OVERLAP[way])
    key = f"{make.__name__} {length}"
    if key not in known:
        known[key] = times_of(*of_all, device)
    report(rank, make, world, length, way, setting, plan.layout, known[key], times_of(*ours, device), plan.efficiency)


def report(rank, make, world, length, way, setting, layout, t1, t, predicted=None):
    for name, whole_time, time in zip(("forward", "training"), t1, t):
        say(rank, {
            "mask": make.__name__, "world": world, "rows": length // world, "way": way, "setting": setting,
            "layout": layout, "pass": name, "t1_ms": round(whole_time, 3), "t_ms": round(time, 3),
            "efficiency": round(whole_time / (world * time), 3),
            **({} if predicted is None else {"predicted": round(predicted, 3)}),
        })  # fmt: skip


def measure_context_parallel(length, rank, world, setting, device):
    """Measures PyTorch's own, causal."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attend(*inputs):  # by the module, where context_parallel puts its own
        return torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)

    def along_dout():
        """Returns the sum of out * dout over all rows, and of out squared."""
        out = attend(*inputs).float()
        return torch.stack([(out * dout).sum(), out.square().sum()])

    *inputs, dout = operands(length, device)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        wanted, t1 = along_dout(), times_of(attend, inputs, dout, [], device)
        mesh, buffers = init_device_mesh(device.type, (world,)), [*inputs, dout]
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 4, no_restore_buffers=set(buffers)):
            found, t = along_dout(), times_of(attend, inputs, dout, [], device)
    dist.all_reduce(found)
    report_error(rank, {"check": "context_parallel", "rows": length}, (abs(found - wanted)[0] / wanted[1].sqrt()).item())
    report(rank, causal, world, length, "context_parallel", setting, "zigzag", t1, t)


def options_of(setting):
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=setting.get("priority", False))
    if "ctas" in setting:
        options.config.min_ctas, options.config.max_ctas = 1, setting["ctas"]
    return options


def run(rank, arguments, name, folder):
    device, world, setting = torch.device(arguments.device, rank), arguments.world, SETTINGS[name]
    backend, options = "gloo", {}
    if device.type == "cuda":
        torch.cuda.set_device(rank)
        backend, options = "nccl", {"device_id": device, "pg_options": options_of(setting)}
    dist.init_process_group(
        backend, init_method=f"file://{folder}/store", rank=rank, world_size=world,
        timeout=datetime.timedelta(seconds=60), **options,
    )  # fmt: skip
    ways = ["keys"]
    if name == "default":
        ways += [*OVERLAP, *(["heads"] if HEADS % world == 0 else [])]
        for groups, overlap in ((1, True), (1, False), *([(world, True)] if "heads" in ways else [])):
            for make in (causal, documents, window, alibi, softcap, padded, prefix, video):
                check(make, arguments.check, rank, world, groups, overlap, device)
    times = pathlib.Path(folder) / f"times{rank}"
    known = json.loads(times.read_text()) if times.exists() else {}
    for rows in arguments.rows:
        for make in (causal, window4096, documents, prefix, alibi, video):
            for way in ways:
                measure(make, rows * world, rank, world, way, name, known, device)
        times.write_text(json.dumps(known))
    if name == "default" and device.type == "cuda":  # gloo has no ring attention
        for rows in arguments.rows:
            measure_context_parallel(rows * world, rank, world, name, device)
    dist.destroy_process_group()


def run_setting(arguments, name, folder):
    """Runs all ranks. Returns what went wrong, or None."""
    (pathlib.Path(folder) / "store").unlink(missing_ok=True)
    context = processes.spawn(run, (arguments, name, folder), nprocs=arguments.world, join=False)
    end = time.monotonic() + SECONDS_OF_SETTING * (2 if name == "default" else 1)
    try:
        while time.monotonic() < end:
            if context.join(timeout=5):
                return None
        return "it took too long"
    except Exception as error:  # of a rank; the other settings are still worth their figures
        return str(error).strip().splitlines()[-1]
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=torch.cuda.device_count())
    parser.add_argument("--rows", type=numbers, default=[16384, 65536], help="of a rank; default: 16384,65536")
    parser.add_argument("--settings", default=";".join(SETTINGS), help=f"between semicolons; default: {'; '.join(SETTINGS)}")
    parser.add_argument("--check", type=int, default=4001, help="length of the problems that are compared; default: 4001")
    parser.add_argument("--device", default="cuda", help="cpu: to try the program, by gloo")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not 1 <= arguments.world <= torch.cuda.device_count():
        sys.exit(f"there are {torch.cuda.device_count()} GPUs, and {arguments.world} are asked for")
    names = [name.strip() for name in arguments.settings.split(";")]
    if unknown := [name for name in names if name not in SETTINGS]:
        sys.exit(f"there is no setting {unknown[0]!r}: {'; '.join(SETTINGS)}")
    head = {"gpu": "none", "count": arguments.world, "torch": torch.__version__, "date": str(datetime.date.today()),
            "command": " ".join(["bench/shards.py", *sys.argv[1:]])}  # fmt: skip
    if arguments.device == "cuda":
        head |= {"gpu": torch.cuda.get_device_name(), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    say(0, head)
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if wrong := run_setting(arguments, name, folder):
                say(0, {"setting": name, "error": wrong})


if __name__ == "__main__":
    main()
