"""`python -m tidewire`: the same as the command `tidewire`."""

from tidewire.runtime.cli import main

main()
