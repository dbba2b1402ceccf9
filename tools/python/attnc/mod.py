"""Mods: parses a text into a checked program."""

import ctypes
import dataclasses
import os
import warnings

from ._library import DTYPE_NAMES, KINDS, Handle, check, library
from ._spec import CaptureInfo, Define, Diagnostic, ModInfo, ParseOptions
from .errors import ModWarning


@dataclasses.dataclass(frozen=True)
class CapturedValue:
    """A value that a mod needs at launch. `kind` is "tensor", "int", "float" or "bool". A tensor also has a dtype
    ("f32") and extents ("4", "H", "KV_LEN", or a free name)."""

    name: str
    kind: str
    dtype: str | None = None
    extents: tuple = ()


class Mod:
    """A parsed and checked mod: the score_mod and mask_mod of an attention. Immutable and thread-safe. `warnings` holds
    a ModWarning for each part of the text that is legal but probably not meant. parse() and load() also issue them."""

    def __init__(self, handle):
        self._handle = handle
        info = ModInfo()
        check(library().attnc_mod_get_info(handle.address, ctypes.byref(info)))
        self.name, self.hash = info.name.decode(), info.hash.decode()
        self.has_score_mod, self.has_mask_mod = bool(info.has_score_mod), bool(info.has_mask_mod)
        self.captures = tuple(self._capture(index) for index in range(info.capture_count))
        self.warnings = tuple(self._warning(index) for index in range(info.warning_count))

    @classmethod
    def parse(cls, text, *, name="<mod>", defines=None):
        """Parses a mod. The text defines a score_mod, a mask_mod or both, and declares its captures; or it is a bare
        expression ("q_idx >= kv_idx"). `defines` overrides constants of the mod: {"WINDOW": 512}. Raises ModError with
        the places of all errors. The language is specified in dsl/SPEC.md of the source."""
        options, keep = _options(name, defines)
        data = text.encode()
        return cls(_made("attnc_mod_parse", data, len(data), ctypes.byref(options), keep=keep))._warned()

    @classmethod
    def parse_ir(cls, text, *, name="<ir>"):
        """Parses IR text, the format of `ir`."""
        data = text.encode()
        return cls(_made("attnc_mod_parse_ir", data, len(data), name.encode()))

    @classmethod
    def load(cls, path, *, defines=None):
        """Loads a mod from a file. A file named *.ir contains IR text."""
        options, keep = _options("", defines)
        return cls(_made("attnc_mod_load", os.fsencode(path), ctypes.byref(options), keep=keep))._warned()

    @property
    def ir(self):
        """The program after all passes, as IR text."""
        return library().attnc_mod_ir(self._handle.address).decode()

    def _capture(self, index):
        info = CaptureInfo()
        check(library().attnc_mod_get_capture(self._handle.address, index, ctypes.byref(info)))
        if KINDS[info.kind] != "tensor":
            return CapturedValue(info.name.decode(), KINDS[info.kind])
        extents = tuple(info.extent[axis].decode() for axis in range(info.rank))
        return CapturedValue(info.name.decode(), "tensor", DTYPE_NAMES[info.dtype], extents)

    def _warning(self, index):
        found = Diagnostic()
        check(library().attnc_mod_get_warning(self._handle.address, index, ctypes.byref(found)))
        return ModWarning(found.id.decode(), found.rendered.decode(errors="replace"))

    def _warned(self):
        for warning in self.warnings:
            warnings.warn(warning, stacklevel=3)
        return self

    def __repr__(self):
        return f"<attnc.Mod {self.name} {self.hash[:12]}>"


def _made(function, *arguments, keep=None):
    return Handle(function, *arguments, destroyer="attnc_mod_destroy")


def _options(name, defines):
    """Returns the struct, and the objects that must outlive it."""
    pairs = [(key.encode(), repr(value).encode()) for key, value in (defines or {}).items()]
    array = (Define * len(pairs))(*pairs)
    return ParseOptions(name=name.encode(), defines=array, define_count=len(pairs)), (pairs, array)
