"""Imports single modules of vLLM where it is not installed: with stand-ins for the names that they import from the rest.

Only what bench/vllm_times.py calls computes as in vLLM; everything else is a class without members.
"""

import enum
import importlib.abc
import importlib.util
import logging
import sys
import types

import torch

# Modules that are loaded from files of vLLM.
MODULES = (
    "vllm.v1.attention.ops.triton_attention_helpers",
    "vllm.v1.attention.ops.triton_unified_attention",
    "vllm.v1.attention.backends.flex_attention",
)


class KVQuantMode(enum.IntEnum):
    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2
    FP8_PER_TOKEN_HEAD = 3
    INT4_PER_TOKEN_HEAD = 4


class AttentionType:
    DECODER = "decoder"
    ENCODER_ONLY = "encoder_only"


class AttentionCGSupport(enum.Enum):
    ALWAYS = 3


class _Generic:
    def __class_getitem__(cls, item):
        return cls


class AttentionMetadataBuilder(_Generic):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        self.kv_cache_spec, self.layer_names, self.vllm_config, self.device = (
            kv_cache_spec, layer_names, vllm_config, device,
        )  # fmt: skip


class AttentionImpl(_Generic):
    pass


class _Logger(logging.Logger):
    def debug_once(self, *message):
        self.debug(*message)

    warning_once = info_once = debug_once


def _of_triton(name):
    import triton
    import triton.language

    return triton if name == "triton" else triton.language


_KNOWN = {
    "AttentionCGSupport": AttentionCGSupport,
    "AttentionImpl": AttentionImpl,
    "AttentionMetadataBuilder": AttentionMetadataBuilder,
    "AttentionType": AttentionType,
    "KVQuantMode": KVQuantMode,
    "VLLM_BATCH_INVARIANT": False,
    "async_tensor_h2d": lambda x, device, **_: x.to(device, non_blocking=True),
    "cdiv": lambda a, b: -(a // -b),
    "current_platform": types.SimpleNamespace(
        fp8_dtype=lambda: torch.float8_e4m3fn, is_device_capability_family=lambda _: False, is_rocm=lambda: False
    ),
    "get_layers_from_vllm_config": lambda config, kind, names: {
        name: config.compilation_config.static_forward_context[name] for name in names
    },
    "init_logger": _Logger,
    "is_quantized_kv_cache": lambda name: name.startswith("fp8"),
    "is_torch_equal_or_newer": lambda version: True,  # than 2.9
}


def _stand_in(name):
    """Returns what a stand-in module calls `name`."""
    if name in _KNOWN:
        return _KNOWN[name]
    if name in ("triton", "tl"):
        return _of_triton(name)
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (_Generic,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name in MODULES:
            file = self.folder.joinpath(*name.split(".")).with_suffix(".py")
            return importlib.util.spec_from_file_location(name, file)
        if name.partition(".")[0] == "vllm":
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return None

    def exec_module(self, module):
        module.__getattr__ = _stand_in


def install(folder):
    """Makes `import vllm...` take MODULES from `folder`, which has the folder vllm, and stand-ins for the rest."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder(folder))
