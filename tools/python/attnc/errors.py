"""Exceptions, by who can repair the cause; and warnings."""


class ModWarning(UserWarning):
    """A warning about a mod, a text or a function of PyTorch or JAX. `id` is its kind, as listed in dsl/SPEC.md:
    "finite-mask". The message is rendered as by a compiler. Its first line ends with the id in
    brackets, for filters of `warnings`."""

    def __init__(self, id: str, rendered: str):
        super().__init__(rendered)
        self.id = id


class CpuWarning(UserWarning):
    """The notice that the fp64 reference on the CPU computes. It comes once per process: at the first problem of at
    least 2^30 multiply-adds (about a second), or at the first of any size if there is a GPU. Ignore the category to
    silence it."""


class Error(Exception):
    """Base class of attnc's exceptions. `remedy` says how to repair the cause; it may be empty."""

    def __init__(self, message: str, remedy: str = ""):
        super().__init__(f"{message}: {remedy}" if remedy else message)
        self.remedy = remedy


class ModError(Error, ValueError):
    """An error in the text of a mod. The message contains all diagnostics, with lines and columns."""


class RunError(Error, RuntimeError):
    """An error of operands that do not fit, files, the GPU, the driver, or NVRTC."""


class ArgumentError(Error, ValueError):
    """An invalid call of the interface."""


class UntranslatableError(TypeError):
    """A mod, as a function of PyTorch or JAX, uses something that attnc cannot translate. The message names the
    operation and a remedy. `id` is the kind of a mistake that texts of mods can also have, as listed in
    dsl/diagnostics.def and dsl/warnings.def: "traced-condition". It is empty for others."""

    def __init__(self, message: str, id: str = ""):
        super().__init__(message)
        self.id = id


class InternalError(Error, RuntimeError):
    """A bug in attnc."""
