"""ATen operations by name: HANDLERS."""

from . import arithmetic, choices, reductions, views  # noqa: F401  they fill the table
from .table import HANDLERS

__all__ = ["HANDLERS"]
