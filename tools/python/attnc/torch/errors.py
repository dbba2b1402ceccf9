"""What a mod can be refused for."""


class UntranslatableError(TypeError):
    """A mod has something that attnc cannot translate. The message names the operation and says what to do."""
