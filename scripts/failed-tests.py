#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The first and the last lines that each failed test printed, in few characters: the end of a log may be all that a
CI system shows.

  scripts/failed-tests.py RESULTS [STACKS]  (of ctest --output-junit, of stacks-of-slow-tests.py)
"""

import pathlib
import re
import sys
import xml.etree.ElementTree

CHARACTERS = 4000  # of all tests
LINE = 300
TESTS = 10
CHATTER = re.compile(r"\[(==========|----------|  PASSED  |  FAILED  |       OK )\]|Note: Google Test filter|^\s*$|"
                     r"^ *\d+ FAILED TESTS?$")
PASSED = re.compile(r"^\[ RUN      \] (\S+)\n(?:(?!\[ RUN ).*\n)*?\[       OK \] \1\b.*\n", re.MULTILINE)  # of a suite


def shorten(output, characters):
    lines = [line[:LINE] for line in PASSED.sub("", output).splitlines() if not CHATTER.match(line)]
    if sum(len(line) + 1 for line in lines) <= characters:
        return lines
    first, last = [], []
    for kept, source in ((first, lines), (last, reversed(lines))):
        left = characters // 2
        for line in source:
            left -= len(line) + 1
            if left < 0:
                break
            kept.append(line)
    return first + ["[...]"] + last[::-1]


def stacks_of(failed):
    """Of the programs that ran one of these tests: ctest's name ends with the name that GoogleTest was given."""
    if len(sys.argv) < 3 or not (file := pathlib.Path(sys.argv[2])).exists():
        return ""
    names = [case.get("name") for case in failed]
    return "\n".join(family for family in file.read_text().split("\n\n")
                     if (ran := re.search(r"--gtest_filter=(\S+)", family)) and
                     any(name.endswith(ran[1]) for name in names))


failed = [case for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase") if case.get("status") == "fail"]
shown = failed[:TESTS]
for case in shown:
    print(f"== {case.get('name')} failed after {float(case.get('time') or 0):.1f} s:")
    print("\n".join(shorten(case.findtext("system-out") or "", CHARACTERS // len(shown))))
if stacks := stacks_of(failed):
    print("== where the threads of slow tests were:")
    print("\n".join(shorten(stacks, CHARACTERS)))
print(f"== {len(failed)} failed: {' '.join(case.get('name') for case in shown)}")
