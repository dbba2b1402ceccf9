"""Why a mod can be refused."""


class UntranslatableError(TypeError):
    """A mod uses something that attnc cannot translate. The message names the operation and a remedy."""


class OperandError(ValueError, RuntimeError):
    """A block mask that does not fit the operands. PyTorch raises RuntimeError since 2.14, and ValueError before."""
