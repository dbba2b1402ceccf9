"""Processes of a test on the CPU, which exchange by gloo. Importing it ends the process with SKIPPED if torch is not
installed."""

import tempfile

import needs

needs.modules("torch.distributed")
import torch
import torch.distributed as dist
import torch.multiprocessing as processes


def start(run, count, *arguments):
    """Runs run(rank, store, *arguments) in `count` processes. Raises the error of one that fails."""
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(run, (f"{folder}/store", *arguments), nprocs=count, start_method="fork")


def join(rank, store, count, **options):
    """Makes the process group. `options` are those of init_process_group."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count, **options)
