"""Tensors of other libraries, through DLPack, and memory that those libraries own."""

import ctypes
import functools
import importlib
import sys
from ctypes import byref

from ._arrays import DTYPE_NAMES
from ._library import DTYPES, check, library
from ._spec import DTYPE_E4M3, Tensor
from .errors import ArgumentError, Error, RunError

_CPU_DEVICES, _CUDA_DEVICES = (1, 3), (2, 13)  # kDLCPU, kDLCUDAHost; kDLCUDA, kDLCUDAManaged
_MOST_AXES = Tensor.shape.size // 8
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def is_on_gpu(array, name):
    if not hasattr(array, "__dlpack_device__"):
        raise ArgumentError(
            f"{name} is {type(array).__name__}", "give a tensor that has DLPack: of torch, NumPy, CuPy, JAX"
        )
    kind, _ = array.__dlpack_device__()
    if kind in _CPU_DEVICES:
        return False
    if kind in _CUDA_DEVICES:
        return True
    raise ArgumentError(f"{name} is on DLPack's device {kind}", "move it to a CUDA device or to the CPU")


@functools.cache
def _driver():
    return ctypes.CDLL("libcuda.so.1")


def current_context():
    """Returns the address of the thread's current CUDA context, None if there is none."""
    context = ctypes.c_void_p()
    _driver().cuCtxGetCurrent(byref(context))
    return context.value


def number_of(value, name, kind):
    """Returns a scalar capture as a bool, an int or a float, as it was given: the library refuses other kinds than the
    mod declares. A tensor of one element is its number."""
    an_int = "an int" if kind == "int" else f"a {kind}"
    refused = f"capture '{name}' is declared as {an_int}, but"
    is_array = hasattr(value, "__dlpack__")
    if hasattr(value, "item"):
        try:
            value = value.item()
        except (RuntimeError, ValueError):
            raise RunError(f"{refused} a tensor of shape {[*value.shape]} is given", "give a number") from None
    if isinstance(value, bool):
        return value
    if hasattr(value, "__index__"):
        value = int(value)
        if kind == "float" and is_array:
            raise RunError(f"{refused} an int is given", "give a tensor of floats, or a number")
        if kind == "int" and not -(2**63) <= value < 2**63:
            raise RunError(f"capture '{name}' is {value}, which does not fit into 32 bits")
        return value if abs(value) < 2**63 else float(value)
    if hasattr(value, "__float__"):
        return float(value)
    raise RunError(f"{refused} {type(value).__name__} is given", "give a number")


def on_cpu(array):
    """Returns the tensor, or a copy of it on the CPU; without its gradient."""
    array = detached(array)
    if not hasattr(array, "__dlpack_device__") or array.__dlpack_device__()[0] in _CPU_DEVICES:
        return array
    return array.cpu() if hasattr(array, "cpu") else array.get()


def detached(array):
    """Returns the tensor as DLPack exports it: without a gradient, if it is one of torch that requires one."""
    return array.detach() if getattr(array, "requires_grad", False) is True else array


def without_gradient(array, name):
    """Returns the tensor detached. Refuses one whose gradient or tangent is expected."""
    if isinstance(getattr(array, "requires_grad", None), bool):  # it is torch's
        import torch

        is_tracked = array.requires_grad and torch.is_grad_enabled()
        if is_tracked or torch.autograd.forward_ad.unpack_dual(array).tangent is not None:
            raise ArgumentError(
                f"{name} {'requires a gradient' if is_tracked else 'has a tangent'}, which attnc.attention() does not compute",
                f"use attnc.torch.flex_attention, or give {name}.detach(), or call this under torch.no_grad()",
            )
    return detached(array)


def _host_capsule(array, name, writes):
    """Exports a tensor on the CPU. NumPy exports no read-only array as it is, since DLPack before 1.0 cannot say so."""
    if getattr(getattr(array, "flags", None), "writeable", True):
        return array.__dlpack__()
    if writes:
        raise ArgumentError(f"{name} is read-only", "give an array that attnc may write into")
    return importlib.import_module("numpy").asarray(_Writeable(array)).__dlpack__()


class _Writeable:
    """The memory of a read-only array of NumPy, as memory that may be written."""

    def __init__(self, array):
        interface = array.__array_interface__
        self.array, self.__array_interface__ = array, {**interface, "data": (interface["data"][0], False)}


@functools.cache
def torch_dtypes():
    """Returns the numbers of torch's dtypes."""
    torch = sys.modules["torch"]
    return {getattr(torch, name): DTYPES[of] for name, of in DTYPE_NAMES.items()} | {torch.float8_e4m3fn: DTYPE_E4M3}


def view_of(tensor):
    """Returns the struct of a tensor of torch, whose dtype is one of torch_dtypes()."""
    shape, stride = tuple(tensor.shape), tensor.stride()
    rank = len(shape)
    view = Tensor(data=tensor.data_ptr(), dtype=torch_dtypes()[tensor.dtype], rank=rank)
    view.shape[:rank], view.stride[:rank] = shape, stride
    return view


def _may_view(array):
    """Whether view_of() has all that DLPack would: for plain tensors of torch on the CPU or the current CUDA GPU."""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and type(array) in (torch.Tensor, torch.nn.Parameter)
        and (array.is_cpu or array.is_cuda and array.get_device() == torch.cuda.current_device() and not torch.version.hip)
        and array.dtype in torch_dtypes()
        and array.dim() <= _MOST_AXES
        and array.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(array)
    )


def _without_sign(array, name, writes):
    """Returns the tensor with its own numbers in memory. Views of torch such as `z.conj().imag` have those of the opposite
    sign, and DLPack does not say so."""
    if not hasattr(array, "is_neg") or not array.is_neg():
        return array
    if writes:
        raise ArgumentError(f"{name} is a view with the opposite sign", "give memory of its own, such as torch.empty")
    return array.resolve_neg()


class View:
    """A struct that borrows a tensor's memory. Keep this object as long as the struct is used."""

    def __init__(self, array, name, on_gpu, wait=None, writes=False):
        """`wait`: on a GPU, the stream that must wait for pending work on the tensor; -1: none."""
        array = _without_sign(detached(array), name, writes)
        is_plain = wait in (None, -1) and _may_view(array)
        if (array.is_cuda if is_plain else is_on_gpu(array, name)) != on_gpu:
            raise ArgumentError(f"{name} is on another device than q", "move it there")
        if is_plain:  # 4 us, where DLPack takes 9
            self.struct, self.owner = view_of(array), array
            return
        self.capsule = array.__dlpack__(stream=wait) if on_gpu else _host_capsule(array, name, writes)
        self.struct, place = Tensor(), int(on_gpu)
        try:
            if _is_valid(self.capsule, b"dltensor_versioned"):
                managed = _pointer(self.capsule, b"dltensor_versioned")
                check(library().attnc_tensor_from_dlpack_versioned(managed, place, int(writes), byref(self.struct)))
            else:
                managed = _pointer(self.capsule, b"dltensor")
                check(library().attnc_tensor_from_dlpack(managed, place, byref(self.struct)))
        except Error as error:
            error.args = (f"{name}: {error}",)
            raise

    def form(self):
        """Returns what kernels depend on: all of the struct but the address, and how far that is aligned."""
        data, self.struct.data = self.struct.data, 0
        form = bytes(self.struct), (data or 0) % 16
        self.struct.data = data
        return form


class Memory:
    """Allocates tensors with the library, and on the device, of a given array."""

    def __init__(self, array):
        self.array = array
        self.library = type(array).__module__.partition(".")[0]
        if self.library not in ("torch", "numpy", "cupy"):
            raise ArgumentError(
                f"attnc cannot make tensors of {type(array).__name__}", "give out=, a tensor that attnc may write into"
            )
        self.module = importlib.import_module(self.library)

    def empty(self, shape, dtype=None):
        """Returns an uninitialised dense tensor. `dtype` is a name. Default: the dtype of the array."""
        dtype = dtype or self.array.dtype
        if self.library != "torch":
            return self.module.empty(shape, dtype=dtype)
        dtype = getattr(self.module, dtype) if isinstance(dtype, str) else dtype
        return self.module.empty(shape, dtype=dtype, device=self.array.device)

    def stream(self):
        """Returns the CUDA stream that the library currently computes on."""
        if self.library == "torch":
            return self.module.cuda.current_stream(self.array.device).cuda_stream
        return self.module.cuda.get_current_stream().ptr
