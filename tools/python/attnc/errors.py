"""What goes wrong, by who can mend it; and what is legal in a mod, and probably not meant."""


class ModWarning(UserWarning):
    """Of the text of a mod. `id` is the kind, as dsl/SPEC.md lists them: "unused-capture". The message is the finding as a
    compiler prints it, and ends with the id in brackets at the end of its first line, for filters of `warnings`."""

    def __init__(self, id, rendered):
        super().__init__(rendered)
        self.id = id


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
