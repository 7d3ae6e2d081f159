"""The command `tidewire`, and `python -m tidewire`.

Loading the program takes a moment in which Ctrl-C would end in a traceback. Until everything is
loaded, Ctrl-C ends the process at once instead, as in any program that has not started its work.
"""

import signal
import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    """The entry point."""
    before = signal.getsignal(signal.SIGINT)
    # A process in the background of a script ignores the signal, and must go on ignoring it.
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tidewire.runtime.cli import main as run

    signal.signal(signal.SIGINT, before)
    try:
        run()
    except KeyboardInterrupt:
        # Ctrl-C came before a command has begun; each command reports it by itself.
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
