# SPDX-License-Identifier: BSD-2-Clause
"""A test of the conformance suite with several clauses says which clause an expectation is about (docs/CONFORMANCE.md, "Within
a test"): otherwise a failure counts against all of them."""

import pathlib
import re
import sys

TEST = re.compile(r"^CONFORMANCE_TEST\w*\(([^{]*?)\)\s*\{(.*?)^\}", re.DOTALL | re.MULTILINE)
CLAUSE = re.compile(r'"([a-z_0-9.\-]+)"')
NAMED = re.compile(r"\bABOUT\(|\bAbout\b")

# The clauses of these promise the same, or a function that the test calls names them.
OTHERWISE = {"OverrunIsAnEvent", "EveryPortCanBeQueried", "DeregisteredUnderWrites", "NumberOfADestroyedRcQp",
             "NumberOfADestroyedUdQp", "NobodyAcknowledges"}

root = pathlib.Path(sys.argv[1]) / "conformance" / "chapters"
found, seen = [], 0
for path in sorted(root.glob("*.cc")):
    text = path.read_text()
    for test in TEST.finditer(text):
        if len(CLAUSE.findall(test[1])) < 2:
            continue
        seen += 1
        if not NAMED.search(test[2]) and not OTHERWISE.intersection(re.split(r"[,\s]+", test[1])):
            found.append(f"{path.name}:{text.count(chr(10), 0, test.start()) + 1}: no expectation names its clause")
if seen < 200:
    found.append(f"{seen} tests with several clauses: too few to be all")
print("\n".join(found) or f"{seen} tests with several clauses name those of their expectations")
sys.exit(bool(found))
