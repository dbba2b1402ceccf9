"""Processes of a test on the CPU, which exchange by gloo. Importing it ends the process with SKIPPED if torch is not
installed."""

import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/python"))
try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as processes
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(0)


def start(run, count, *arguments):
    """Runs run(rank, store, *arguments) in `count` processes. Raises the error of one that fails."""
    with tempfile.TemporaryDirectory() as folder:
        processes.start_processes(run, (f"{folder}/store", *arguments), nprocs=count, start_method="fork")


def join(rank, store, count, **options):
    """Makes the process group. `options` are those of init_process_group."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count, **options)
