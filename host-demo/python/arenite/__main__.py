"""Runs the program `arenite`, which the package installs beside Python."""

import os
import shutil
import sys
import sysconfig


def main() -> None:
    name = "arenite" + (".exe" if os.name == "nt" else "")
    beside = os.path.join(sysconfig.get_path("scripts"), name)
    program = beside if os.path.exists(beside) else shutil.which(name)
    if program is None:
        sys.exit("error: the program `arenite` is not in this package: build it with `cargo install --path host-demo`")
    os.execv(program, [program, *sys.argv[1:]])


main()
