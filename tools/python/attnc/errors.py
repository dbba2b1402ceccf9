"""What goes wrong, by who can mend it."""


class Error(Exception):
    """Of attnc. `remedy` says what to do; it may be empty."""

    def __init__(self, message, remedy=""):
        super().__init__(f"{message}: {remedy}" if remedy else message)
        self.remedy = remedy


class ModError(Error, ValueError):
    """The text of a mod is wrong. The message has all diagnostics, with lines and columns."""


class RunError(Error, RuntimeError):
    """Operands that do not fit, files, GPU, driver, NVRTC."""


class ArgumentError(Error, ValueError):
    """A call that the interface does not have."""


class InternalError(Error, RuntimeError):
    """A bug in attnc."""
