"""Compares the C interface with the crate: prints, for every public item and method of .ci/api.txt, the functions in C that do the
same, or the reason why there is none, as interface.txt says.

    python3 tests/capi/interface.py

Fails if an item has neither, if a line of interface.txt fits no item, or if it names a function that the header does not have, or
leaves out one that it has.
"""

import fnmatch
import pathlib
import re
import sys

root = pathlib.Path(__file__).parent.parent.parent
header = set(re.findall(r"\barenite_(\w+)\(", (root / "src/arenite.h").read_text()))

items = set()
for line in (root / ".ci/api.txt").read_text().splitlines():
    item, declaration = line.removeprefix("arenite::").split(": ", 1)
    method = re.search(r"^(?:#\[\w+\] )?pub (?:const |unsafe )*fn (\w+)", declaration)
    items.add((item, method[1] if method else ""))

lines = []
for line in (root / "tests/capi/interface.txt").read_text().splitlines():
    if line and not line.startswith("#"):
        words, text = line.split(": ", 1)
        item, *methods = words.split()
        lines.append((item, methods, text))

errors, used = [], set()
for item, method in sorted(items):
    fitting = (
        i for i, (pattern, methods, _) in enumerate(lines)
        if fnmatch.fnmatchcase(item, pattern) and (not methods or method in methods)
    )
    number = next(fitting, None)
    # The methods of a type may have lines of their own only.
    if number is None and (method or not any(name == item for name, _ in items - {(item, "")})):
        errors.append(f"{item} {method} has no line in interface.txt")
    if number is not None:
        used.add(number)
        print(f"{item}{'::' if method else ''}{method}: {lines[number][2]}")
named = {name for _, _, text in lines for name in re.findall(r"`(\w+)`", text)}
errors += [f"no item of the crate fits: {' '.join([lines[i][0], *lines[i][1]])}" for i in range(len(lines)) if i not in used]
errors += [f"the header has no arenite_{name}" for name in sorted(named - header)]
errors += [f"interface.txt leaves out arenite_{name}" for name in sorted(header - named)]
if errors:
    sys.exit("\n".join(f"error: {error}" for error in errors))
