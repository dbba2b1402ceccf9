"""libattnc.so: opens it, finds the module that was made with it, and turns its errors into exceptions."""

import ctypes
import functools
import importlib.util
import os
import pathlib
import sys
from ctypes import byref, c_void_p

from .errors import ArgumentError, RunError, InternalError, ModError


def _path():
    """Returns ATTNC_LIBRARY, else the library of the wheel."""
    given = os.environ.get("ATTNC_LIBRARY")
    if given:
        return given
    return str(pathlib.Path(__file__).with_name("libattnc.so"))


def _import_spec():
    """Returns the module attnc._spec: the structs, enumerators and functions of the library. The build makes it from the
    C headers, and puts it next to the library."""
    folder = os.path.dirname(os.path.abspath(_path()))
    sys.modules[__package__].__path__.append(folder)
    try:
        return importlib.import_module("._spec", __package__)
    except ModuleNotFoundError:
        raise ImportError(
            f"{folder} has no _spec.py, which belongs to libattnc.so: install the package with pip, or name a built "
            "library in ATTNC_LIBRARY"
        ) from None


_spec = _import_spec()
DTYPES = {
    name.removeprefix("DTYPE_").lower(): number
    for name, number in vars(_spec).items() if name.startswith("DTYPE_") and number != _spec.DTYPE_DEFAULT
}  # fmt: skip
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
KINDS = ("tensor", "int", "float", "bool")
# Launches take their structs as plain addresses, which is faster on the host.
_LAUNCHES = (
    "attnc_prepared_launch", "attnc_prepared_launch_backward", "attnc_compute_on_cpu", "attnc_compute_backward_on_cpu",
)  # fmt: skip
_ERRORS = {1: ModError, 2: ArgumentError, 3: RunError, 4: InternalError, 5: MemoryError}


@functools.cache
def library():
    """Returns the library. The first call opens it."""
    path = _path()
    try:
        found = ctypes.CDLL(path)
    except OSError as error:
        raise RunError(
            f"libattnc.so cannot be opened ({error})", "install the package with pip, or name the library in ATTNC_LIBRARY"
        ) from None
    for name, (result, arguments) in _spec.FUNCTIONS.items():
        function = getattr(found, name)
        function.restype = result
        function.argtypes = [c_void_p] * len(arguments) if name in _LAUNCHES else arguments
    return found


def check(status):
    """Raises the error that a call left in attnc_last_error()."""
    if status:
        message, remedy = (getattr(library(), name)().decode() for name in ("attnc_last_error", "attnc_last_remedy"))
        error = _ERRORS.get(status, InternalError)
        raise error(message) if error is MemoryError else error(message, remedy)


class Handle:
    """An object of the library. It is destroyed with this handle."""

    __slots__ = ("address", "destroyer", "__weakref__")

    def __init__(self, create, *arguments, destroyer=None):
        made = c_void_p()
        check(getattr(library(), create)(*arguments, byref(made)))
        self.address, self.destroyer = made.value, destroyer and getattr(library(), destroyer)

    def __del__(self):
        if getattr(self, "destroyer", None):
            self.destroyer(self.address)


def nvrtc_path():
    """Returns the NVRTC of the wheel nvidia-cuda-nvrtc. None: attnc searches by itself."""
    if os.environ.get("ATTNC_NVRTC"):
        return None
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        for found in sorted(pathlib.Path(folder).glob("*/lib/libnvrtc.so.13")):
            return str(found)
    return None


@functools.cache
def compiler():
    """Returns the compiler of this process."""
    path = nvrtc_path()
    return Handle("attnc_compiler_create", byref(_spec.CompilerOptions(nvrtc_path=path and path.encode())))
