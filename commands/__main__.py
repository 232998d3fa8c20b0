"""`python -m commands` is the `scribe` command."""

from commands.main import main

main()
