#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs one case of tests/programs, or lists them all for CMake.

  case.py --list                                      name, labels, processors: one case per line
  case.py NAME --verbena build/release/bin/verbena    exit status 0: passed, 1: failed, 77: cannot run here
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

import cases  # noqa: E402, F401 (fills the table)
from harness.failure import Failure, Skip  # noqa: E402
from harness.registry import CASES, Settings  # noqa: E402

SKIPPED = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=sorted(CASES), metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--verbena", default="verbena")
    parser.add_argument("--build", default="")
    parser.add_argument("--patience", type=float, default=100, help="seconds that one program may take")
    parser.add_argument("--sources", default="", help="the folder of tests/programs/from_sources")
    options = parser.parse_args()
    if options.list:
        for entry in CASES.values():
            print(f"{entry.name} {entry.extent} {entry.processors}")
        return 0
    if not options.name:
        parser.error("which case?")
    settings = Settings(options.verbena, options.build, options.patience, options.sources)
    try:
        CASES[options.name].run(settings)
    except Skip as reason:
        print(f"SKIPPED: {reason}")
        return SKIPPED
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
