"""python -m attnc: the command."""

from ._command import main

main()
