"""Stands in for `curl -s URL [-H HEADER] [--json BODY]` on a machine without it. Holds no test."""

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("--json")
    given = parser.parse_args()
    headers = dict(header.split(": ", 1) for header in given.H)
    body = None if given.json is None else given.json.encode()
    if body is not None:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(given.url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            sys.stdout.write(response.read().decode())
    except urllib.error.HTTPError as error:
        sys.stdout.write(error.read().decode())


def install(directory: Path) -> None:
    """Put a program named curl into a directory."""
    program = directory / "curl"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)


if __name__ == "__main__":
    main()
