"""Why a mod can be refused."""


from ..errors import UntranslatableError

__all__ = ["OperandError", "UntranslatableError"]


class OperandError(ValueError, RuntimeError):
    """A block mask that does not fit the operands. PyTorch raises RuntimeError since 2.14, and ValueError before."""
