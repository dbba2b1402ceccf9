"""The command `attnc` that the wheel contains."""

import os
import pathlib
import subprocess
import sys

from ._library import nvrtc_path
from .errors import RunError


def path() -> str:
    """Returns ATTNC_COMMAND, else the command of the wheel."""
    given = os.environ.get("ATTNC_COMMAND")
    found = pathlib.Path(given) if given else pathlib.Path(__file__).with_name("bin") / "attnc"
    if not found.is_file():
        raise RunError(
            f"the command attnc is not at {found}", "install the package with pip, or name the command in ATTNC_COMMAND"
        )
    return str(found)


def _environment():
    """Returns the environment in which the command finds the NVRTC of this Python."""
    found = nvrtc_path()
    return {**os.environ, "ATTNC_NVRTC": found} if found else os.environ


def output_of(*arguments: str) -> str:
    """Returns what the command prints. Raises RunError with its message if it fails."""
    done = subprocess.run(
        [path(), *arguments], env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode:
        raise RunError(done.stderr.strip().removeprefix("attnc: error: ") or f"attnc exited with {done.returncode}")
    return done.stdout


def main() -> None:
    """Becomes the command, with the arguments of this process."""
    try:
        command = path()
    except RunError as error:
        sys.exit(f"attnc: error: {error}")
    os.execve(command, ["attnc", *sys.argv[1:]], _environment())
