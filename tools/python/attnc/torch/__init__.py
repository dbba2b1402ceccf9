"""attnc for PyTorch: FlexAttention's interface over attnc's kernels. Needs torch 2.6 or later."""

from .errors import UntranslatableError
from .translation import Translation, translate

__all__ = ["Translation", "UntranslatableError", "translate"]
