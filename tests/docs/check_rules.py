# SPDX-License-Identifier: BSD-2-Clause
"""The table of rules in docs/CHECK.md is that of `verbena check` (emulator/findings/*.inc), and each rule has a program
in tests/check/programs. With --write the table is written."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
BEGIN, END = "| rule | level | what is wrong |\n| --- | --- | --- |\n", "\n## "
GROUPS = "posting", "completion", "memory", "connection", "lifetime", "portability"


def rules():
    """(id, group, level, by default, title)"""
    for group in GROUPS:
        text = (root / f"emulator/findings/{group}_rules.inc").read_text()
        yield from re.findall(
            r'^\{"([a-z0-9-]+)", "([a-z]+)", Level::k(\w+), (true|false),\s*"((?:[^"\\]|\\.)*)",', text, re.M)


ROWS = list(rules())
count = sum(len(re.findall(r'^\{"', (root / f"emulator/findings/{group}_rules.inc").read_text(), re.M)) for group in GROUPS)
assert count == len(ROWS), f"{count} rows, {len(ROWS)} are understood"
lines = []
for group in GROUPS:
    for rule, of, level, by_default, title in sorted(ROWS, key=lambda row: row[0]):
        if of == group:
            lines.append(f"| {rule} | {level.lower()}{'' if by_default == 'true' else ', off'} | {title.replace('|', '/')} |")
table = "\n".join(lines) + "\n"

path = root / "docs/CHECK.md"
text = path.read_text()
head, rest = text.split(BEGIN, 1)
written, tail = rest.split(END, 1)
if "--write" in sys.argv:
    path.write_text(head + BEGIN + table + END + tail)
    sys.exit(0)
problems = [] if written == table else ["docs/CHECK.md differs: tests/docs/check_rules.py . --write"]
programs = {file.name.split(".")[0] for file in (root / "tests/check/programs").glob("*.c")}
# Nothing in one process on an ordinary device leads there.
WITHOUT = set(re.findall(r"^- `([a-z0-9-]+)`:", text, re.M))
problems += [f"{rule}: no program in tests/check/programs, and no reason in docs/CHECK.md"
             for rule, *_ in ROWS if rule not in programs | WITHOUT]
problems += [f"{rule}: a reason in docs/CHECK.md, and a program" for rule in WITHOUT & programs]
print("\n".join(problems) or f"{len(ROWS)} rules")
sys.exit(bool(problems))
