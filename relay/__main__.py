"""`python -m relay` is the command `relay`."""

from relay.cli import main

main()
