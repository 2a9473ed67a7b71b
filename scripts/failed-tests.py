#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The last lines that each failed test printed: the end of a log may be all that a CI system shows.

  scripts/failed-tests.py RESULTS  (of ctest --output-junit)
"""

import sys
import xml.etree.ElementTree

LINES = 40  # of each test
TESTS = 10

failed = [case for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase") if case.get("status") == "fail"]
for case in failed[:TESTS]:
    print(f"== {case.get('name')} failed after {float(case.get('time') or 0):.1f} s:")
    print("\n".join((case.findtext("system-out") or "").splitlines()[-LINES:]))
print(f"== {len(failed)} failed: {' '.join(case.get('name') for case in failed)}")
