"""A program for the tests of `tests.support.forked`. Holds no test."""

import os
import signal
import sys
from pathlib import Path


def say(*words: object) -> None:
    sys.stdout.write("|".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main() -> None:
    match sys.argv[1:]:
        case ["say", *words]:
            found = (os.environ.get(name) for name in ("COLOUR", "HIDDEN", "OTHER"))
            say(" ".join(words), *found, sys.stdin.read(), __name__)
        case ["exit", code]:
            sys.exit(int(code))
        case ["files"]:
            # The last one is the directory itself, which is open while it is read.
            say(*sorted(int(file.name) for file in Path("/proc/self/fd").iterdir())[:-1])
        case ["wait"]:
            say(os.getpid())
            signal.pause()
        case _:
            raise RuntimeError("as it was told to")


if __name__ == "__main__":
    main()
