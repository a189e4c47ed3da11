"""Runs the program `arenite`: `python -m arenite`, or the script `arenite`."""

import sys
from typing import NoReturn

from arenite import _native


def main() -> NoReturn:
    arguments = sys.argv[1:]
    # `arenite serve` starts a process for each model as this one was started, with the same options of Python.
    started = sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)]
    if sys.orig_argv[1 + len(started) :] != arguments:
        started = ["-m", "arenite"]
    sys.exit(_native.run(sys.executable, started, arguments))


if __name__ == "__main__":
    main()
