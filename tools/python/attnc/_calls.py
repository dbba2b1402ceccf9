"""Where a call comes from, for warnings and messages."""

import linecache
import pathlib
import sys
import types

_HERE = str(pathlib.Path(__file__).parent)


def is_ours(name: str, others: tuple[str, ...] = ()) -> bool:
    """Whether a file is of attnc, of what torch generates, or in one of the folders `others`."""
    return name.startswith((_HERE, "<frozen", "<eval_with_key>", *others))


def stack_level(*others: str) -> int:
    """Returns the `stacklevel` for warnings.warn() in the caller that names the first line outside of attnc and of the
    folders `others`."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and is_ours(frame.f_code.co_filename, others):
        frame, level = frame.f_back, level + 1
    return level


def line_below(code: types.CodeType, *others: str) -> str:
    """Returns "file:line" of the innermost line that runs outside of attnc and of the folders `others`, called by this
    code. Empty if there is none."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not code:
        if not is_ours(frame.f_code.co_filename, others):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def traceback_of(error: BaseException, *others: str) -> types.TracebackType | None:
    """Returns the innermost part of a traceback that is outside of attnc and of the folders `others`."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        if not is_ours(traceback.tb_frame.f_code.co_filename, others):
            found = traceback
        traceback = traceback.tb_next
    return found


def place_of(error: BaseException, *others: str) -> tuple[str, str]:
    """Returns ("file:line", text) of the innermost line that raised outside of attnc and of the folders `others`. Both
    may be empty."""
    found = traceback_of(error, *others)
    if found is None:
        return "", ""
    name, line = found.tb_frame.f_code.co_filename, found.tb_lineno
    return f"{name}:{line}", linecache.getline(name, line).strip()
