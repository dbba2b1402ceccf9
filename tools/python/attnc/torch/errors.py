"""Why a mod can be refused."""


class UntranslatableError(TypeError):
    """A mod uses something that attnc cannot translate. The message names the operation and a remedy."""
