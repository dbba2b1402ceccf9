"""libattnc.so through ctypes: the structs and functions of include/attnc/c.h that the package uses."""

import ctypes
import functools
import importlib.util
import os
import pathlib
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_void_p

from .errors import ArgumentError, RunError, InternalError, ModError

MAX_RANK = 6
DTYPES = {"bool": 1, "u8": 2, "i8": 3, "i16": 4, "i32": 5, "i64": 6, "f16": 7, "bf16": 8, "f32": 9}
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
KINDS = ("tensor", "int", "float", "bool")


class Sized(Structure):
    """A struct that begins with its size."""

    def __init__(self, **members):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)


def sized(*fields):
    return [("struct_size", c_size_t), *fields]


class Tensor(Sized):
    _fields_ = sized(
        ("data", c_void_p), ("dtype", c_int32), ("rank", c_int32),
        ("shape", c_int64 * MAX_RANK), ("stride", c_int64 * MAX_RANK),
    )  # fmt: skip


class Capture(Sized):
    _fields_ = sized(
        ("name", c_char_p), ("tensor", POINTER(Tensor)), ("integer", c_int64), ("real", c_double),
        ("kind", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class Define(Structure):
    _fields_ = [("name", c_char_p), ("value", c_char_p)]


class ParseOptions(Sized):
    _fields_ = sized(("name", c_char_p), ("defines", POINTER(Define)), ("define_count", c_size_t))


class ModInfo(Sized):
    _fields_ = sized(
        ("name", c_char_p), ("hash", c_char_p), ("capture_count", c_size_t),
        ("has_score_mod", c_int32), ("has_mask_mod", c_int32), ("warning_count", c_size_t),
    )  # fmt: skip


class CaptureInfo(Sized):
    _fields_ = sized(
        ("name", c_char_p), ("kind", c_int32), ("dtype", c_int32), ("extent", c_char_p * MAX_RANK),
        ("rank", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class Diagnostic(Sized):
    _fields_ = sized(
        ("id", c_char_p), ("file", c_char_p), ("message", c_char_p), ("hint", c_char_p), ("rendered", c_char_p),
        ("line", c_int32), ("column", c_int32),
    )  # fmt: skip


class CompilerOptions(Sized):
    _fields_ = sized(
        ("cache_directory", c_char_p), ("nvrtc_path", c_char_p), ("log", c_void_p), ("log_user", c_void_p),
        ("cache_mode", c_int32), ("reserved", c_int32),
    )  # fmt: skip


class BlockMaskShape(Structure):
    _fields_ = [
        ("batch", c_int64), ("heads", c_int64), ("q_len", c_int64), ("kv_len", c_int64), ("q_block", c_int32),
        ("kv_block", c_int32),
    ]  # fmt: skip


class BlockLists(Structure):
    _fields_ = [
        ("partial_count", c_void_p), ("partial_index", c_void_p), ("full_count", c_void_p), ("full_index", c_void_p),
        ("index_stride", c_int64),
    ]  # fmt: skip


class BlockMaskView(Sized):
    _fields_ = sized(
        ("shape", BlockMaskShape), ("rows", BlockLists), ("columns", BlockLists), ("of_whole_mod", c_int32),
        ("reserved", c_int32),
    )  # fmt: skip


class Operands(Sized):
    _fields_ = sized(
        ("q", POINTER(Tensor)), ("k", POINTER(Tensor)), ("v", POINTER(Tensor)), ("kv_lengths", POINTER(Tensor)),
        ("q_offsets", POINTER(Tensor)), ("captures", POINTER(Capture)), ("capture_count", c_size_t),
        ("block_mask", c_void_p), ("scale", c_float), ("has_scale", c_int32),
        ("k_scales", POINTER(Tensor)), ("v_scales", POINTER(Tensor)), ("page_table", POINTER(Tensor)),
        ("new_k", POINTER(Tensor)), ("new_v", POINTER(Tensor)),
        ("cu_seqlens_q", POINTER(Tensor)), ("cu_seqlens_kv", POINTER(Tensor)),
        ("max_q_len", c_int64), ("max_kv_len", c_int64),
    )  # fmt: skip


class Outputs(Sized):
    _fields_ = sized(("out", POINTER(Tensor)), ("lse", POINTER(Tensor)), ("row_max", POINTER(Tensor)))


class BackwardOperands(Sized):
    _fields_ = sized(
        ("forward", POINTER(Operands)), ("out", POINTER(Tensor)), ("lse", POINTER(Tensor)),
        ("dout", POINTER(Tensor)), ("dlse", POINTER(Tensor)),
    )  # fmt: skip


class BackwardOutputs(Sized):
    _fields_ = sized(
        ("dq", POINTER(Tensor)), ("dk", POINTER(Tensor)), ("dv", POINTER(Tensor)),
        ("captures", POINTER(Capture)), ("capture_count", c_size_t),
    )  # fmt: skip


class PrepareOptions(Sized):
    _fields_ = sized(
        ("arch", c_char_p), ("pins", c_void_p), ("pin_count", c_size_t), ("family", c_int32), ("offsets", c_int32),
        ("tf32", c_int32), ("deterministic", c_int32), ("no_block_mask", c_int32), ("decode", c_int32),
        ("tile", c_char_p), ("backward_tile", c_char_p),
    )  # fmt: skip


class TunedTile(Sized):
    _fields_ = sized(
        ("tile", c_char_p), ("passed_over", c_char_p), ("ms", c_double), ("is_winner", c_int32), ("reserved", c_int32),
    )  # fmt: skip


_FUNCTIONS = {
    "attnc_mod_parse": (c_char_p, c_size_t, POINTER(ParseOptions), POINTER(c_void_p)),
    "attnc_mod_parse_ir": (c_char_p, c_size_t, c_char_p, POINTER(c_void_p)),
    "attnc_mod_load": (c_char_p, POINTER(ParseOptions), POINTER(c_void_p)),
    "attnc_mod_get_info": (c_void_p, POINTER(ModInfo)),
    "attnc_mod_get_capture": (c_void_p, c_size_t, POINTER(CaptureInfo)),
    "attnc_mod_get_warning": (c_void_p, c_size_t, POINTER(Diagnostic)),
    "attnc_tensor_from_dlpack": (c_void_p, c_int32, POINTER(Tensor)),
    "attnc_tensor_from_dlpack_versioned": (c_void_p, c_int32, c_int32, POINTER(Tensor)),
    "attnc_compiler_create": (POINTER(CompilerOptions), POINTER(c_void_p)),
    "attnc_prepare": (
        c_void_p, c_void_p, POINTER(Operands), POINTER(Outputs), POINTER(PrepareOptions), POINTER(c_void_p),
    ),
    "attnc_prepare_training": (
        c_void_p, c_void_p, POINTER(BackwardOperands), POINTER(Outputs), POINTER(BackwardOutputs),
        POINTER(PrepareOptions), POINTER(c_void_p),
    ),
    "attnc_prepared_workspace_bytes": (c_void_p, POINTER(c_size_t)),
    "attnc_prepared_initialise": (c_void_p, POINTER(Operands), c_void_p, c_void_p),
    # Launches take their structs as plain addresses, which is faster on the host.
    "attnc_prepared_launch": (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    "attnc_prepared_launch_backward": (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    "attnc_tune": (
        c_void_p, c_void_p, POINTER(Operands), POINTER(Outputs), POINTER(PrepareOptions), c_void_p, POINTER(c_void_p),
    ),
    "attnc_tuning_get_tile": (c_void_p, c_int32, c_size_t, POINTER(TunedTile)),
    "attnc_compute_on_cpu": (c_void_p, c_void_p, c_void_p),
    "attnc_compute_backward_on_cpu": (c_void_p, c_void_p, c_void_p),
}  # fmt: skip
_TEXTS = {
    "attnc_version_text": (),
    "attnc_last_error": (),
    "attnc_last_remedy": (),
    "attnc_mod_ir": (c_void_p,),
    "attnc_prepared_get_preparation": (c_void_p,),
    "attnc_preparation_text": (c_void_p,),
}
_DESTROYERS = ("attnc_mod_destroy", "attnc_prepared_destroy", "attnc_tuning_destroy")
_ERRORS = {1: ModError, 2: ArgumentError, 3: RunError, 4: InternalError, 5: MemoryError}


def _path():
    """Returns ATTNC_LIBRARY, else the library of the wheel."""
    given = os.environ.get("ATTNC_LIBRARY")
    if given:
        return given
    return str(pathlib.Path(__file__).with_name("libattnc.so"))


@functools.cache
def library():
    """Returns the library. The first call opens it."""
    path = _path()
    try:
        found = ctypes.CDLL(path)
    except OSError as error:
        raise RunError(
            f"libattnc.so cannot be opened ({error})",
            "install the package with pip, or name the library in ATTNC_LIBRARY",
        ) from None
    for name, arguments in _FUNCTIONS.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, c_int32
    for name, arguments in _TEXTS.items():
        function = getattr(found, name)
        function.argtypes = arguments
        function.restype = c_void_p if name == "attnc_prepared_get_preparation" else c_char_p
    found.attnc_tuning_tile_count.argtypes = (c_void_p, c_int32)
    found.attnc_tuning_tile_count.restype = c_size_t
    for name in _DESTROYERS:
        getattr(found, name).argtypes, getattr(found, name).restype = (c_void_p,), None
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


def _nvrtc():
    """Returns the NVRTC of the wheel that the package depends on. None: attnc searches by itself."""
    if os.environ.get("ATTNC_NVRTC"):
        return None
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        for found in sorted(pathlib.Path(folder).glob("*/lib/libnvrtc.so.13")):
            return str(found).encode()
    return None


@functools.cache
def compiler():
    """Returns the compiler of this process."""
    return Handle("attnc_compiler_create", byref(CompilerOptions(nvrtc_path=_nvrtc())))
