"""Runs tests in parallel processes: compilers on the host take most of a test's time.

A test's output is printed when it ends, and failures in full. A process that dies, or a test that exceeds its time
limit, is a failure of its own.
"""

import argparse
import io
import multiprocessing.connection
import os
import re
import sys
import time
import traceback
import unittest


def _work(run, pipe):
    while (name := pipe.recv()) is not None:
        started = time.monotonic()
        try:
            said, failure = run(name)
        except Exception:
            said, failure = "", traceback.format_exc()
        pipe.send((said, failure, time.monotonic() - started))
        if "CUDA error" in (failure or ""):
            break  # nothing can be launched from here any more


class _Worker:
    """A process, and what it runs."""

    def __init__(self, run):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(run, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that the process alone keeps the pipe open
        self.name = None

    def begin(self, name):
        self.name = name
        self.pipe.send(name)

    def result(self):
        """(what to say, failure or None, seconds), and whether the process can go on."""
        try:
            result = self.pipe.recv()
        except EOFError:
            self.process.join()
            return ("", f"the process died, with exit code {self.process.exitcode}", 0), False
        return result, "CUDA error" not in (result[1] or "")


def run_all(run, names, jobs, limit):
    """Calls run(name) -> (what to say, failure or None) for all names; returns how many failed. `limit`: seconds."""
    started, left, failed = time.monotonic(), list(names), 0

    def end(name, said, failure, seconds):
        nonlocal failed
        failed += failure is not None
        print(f"{'ok' if failure is None else 'FAILED'}  {name}  {seconds:.1f} s  {said}", flush=True)
        if failure is not None:
            print(failure, flush=True)

    workers, done = [_Worker(run) for _ in range(jobs)], []
    for worker in workers:
        worker.begin(left.pop(0))
    while workers and (rest := limit - (time.monotonic() - started)) > 0:
        ready = multiprocessing.connection.wait([worker.pipe for worker in workers], rest)
        for worker in [worker for worker in workers if worker.pipe in ready]:
            result, is_usable = worker.result()
            end(worker.name, *result)
            if is_usable:
                worker.begin(left.pop(0) if left else None)
            elif left:
                workers.append(_Worker(run))
                workers[-1].begin(left.pop(0))
            if not is_usable or worker.name is None:
                workers.remove(worker)
                done.append(worker.process)
    for worker in workers:
        worker.process.kill()
        end(worker.name, "", f"has not ended within {limit} s", limit)
    for name in left:
        end(name, "", f"has not begun within {limit} s", 0)
    for process in done:
        process.join(10)
    print(f"{len(names)} run, {failed} failed, {time.monotonic() - started:.0f} s", flush=True)
    return failed


def main(run, names, description):
    """The command line of a test program; ends the process."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 16), help="processes")
    parser.add_argument("--limit", type=int, default=3600, help="seconds, behind which what has not ended has failed")
    parser.add_argument("--only", default="", help="a regular expression that names must match")
    parser.add_argument("--list", action="store_true", help="prints names, and runs nothing")
    options = parser.parse_args()
    names = [name for name in names if re.search(options.only, name)]
    if options.list:
        sys.exit(print("\n".join(names)))
    if not names:
        sys.exit(f"no name matches {options.only!r}: --list prints them")
    jobs = min(options.jobs, len(names))
    os.environ.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // jobs, 1)))  # of each process
    sys.exit(run_all(run, names, jobs, options.limit) > 0)


def tests_of(case):
    """Names of the tests of a unittest.TestCase."""
    return unittest.defaultTestLoader.getTestCaseNames(case)


def run_test(case, name):
    """As run_all() wants it."""
    stream = io.StringIO()
    suite = unittest.TestSuite([case(name)])  # which calls setUpClass
    result = unittest.TextTestRunner(stream, verbosity=0).run(suite)
    failures = [f"{test}\n{trace}" for test, trace in result.errors + result.failures]
    return "".join(f"skipped: {why}" for _, why in result.skipped), "\n".join(failures) or None
