"""Runs the program `arenite`: `python -m arenite`, or the script `arenite`."""

import os
import sys
from typing import NoReturn

from arenite import _native


def main() -> NoReturn:
    # No file may get the number of a closed standard stream.
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    arguments = sys.argv[1:]
    # `arenite serve` starts a process for each model as this one was started, with the same options of Python.
    started = sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)]
    if sys.orig_argv[1 + len(started) :] != arguments:
        started = ["-m", "arenite"]
    sys.exit(_native.run(sys.executable, started, arguments))


if __name__ == "__main__":
    main()
