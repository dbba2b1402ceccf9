"""Where a call comes from, for warnings and messages."""

import linecache
import pathlib
import sys
import traceback
import types

_HERE = str(pathlib.Path(__file__).parent)


def is_ours(name: str, others: tuple[str, ...] = ()) -> bool:
    """Whether a file is of attnc, of what torch generates, or in one of the folders `others`."""
    return name.startswith((_HERE, "<frozen", "<eval_with_key>", *others))


def stack_level(*others: str) -> int:
    """Returns the `stacklevel` for warnings.warn() of the first line outside of attnc and of the folders `others`."""
    frames = traceback.walk_stack(sys._getframe(1))
    return next((level for level, (frame, _) in enumerate(frames, 1) if not is_ours(frame.f_code.co_filename, others)), 1)


def line_below(code: types.CodeType, *others: str) -> str:
    """Returns "file:line" of the innermost line outside of attnc and `others` that this code called, or an empty text."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code is code:
            break
        if not is_ours(frame.f_code.co_filename, others):
            return f"{frame.f_code.co_filename}:{line}"
    return ""


def traceback_of(error: BaseException, *others: str) -> types.TracebackType | None:
    """Returns the innermost part of a traceback that is outside of attnc and of the folders `others`."""
    found, part = None, error.__traceback__
    while part is not None:
        if not is_ours(part.tb_frame.f_code.co_filename, others):
            found = part
        part = part.tb_next
    return found


def place_of(error: BaseException, *others: str) -> tuple[str, str]:
    """Returns ("file:line", text) of the innermost line that raised outside of attnc and `others`, or empty texts."""
    found = traceback_of(error, *others)
    if found is None:
        return "", ""
    name, line = found.tb_frame.f_code.co_filename, found.tb_lineno
    return f"{name}:{line}", linecache.getline(name, line).strip()
