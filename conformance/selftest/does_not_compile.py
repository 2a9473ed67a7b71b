#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A test without a clause, and one of a clause that does not exist, do not compile; one with its clause does.

    conformance/selftest/does_not_compile.py COMPILER [OPTION...]      as chapters are compiled
"""
import re
import subprocess
import sys

SOURCE = """#include "suite/test.h"
namespace conformance {
using Fixture = Test;
#line 1 "with_its_clause.cc"
CONFORMANCE_TEST(pd, One, "ibv_alloc_pd.pointer") {}
#line 1 "without_a_clause.cc"
CONFORMANCE_TEST(pd, Two, ) {}
#line 1 "of_an_unknown_clause.cc"
CONFORMANCE_TEST(pd, Three, "ibv_alloc_pd.no-such") {}
}  // namespace conformance
"""


def main():
    command = [*sys.argv[1:], "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    seen = subprocess.run(command, input=SOURCE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    blamed = set(re.findall(r"^(\w+)\.cc:", seen.stderr, re.M))
    if seen.returncode != 0 and blamed == {"without_a_clause", "of_an_unknown_clause"} and all(
            text in seen.stderr for text in ("name the clauses", "no clause of this id")):
        print("refused: a test " + ", a test ".join(sorted(blamed)).replace("_", " "))
        return 0
    print(seen.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
