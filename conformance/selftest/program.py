#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The program from outside: exit status, the line of progress, the reports, what `compare` says.

    conformance/selftest/program.py SCRIPTED [verbena run --]

SCRIPTED is main() of verbs-conformance with the tests of scripted.cc, which have every verdict; the device comes from
the command before it. The cases are in cases_*.py, a file for each subject.
"""
import importlib
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
import scripted


def main():
    scripted.program, scripted.prefix = sys.argv[1], sys.argv[2:]
    loader, suite = unittest.TestLoader(), unittest.TestSuite()
    for path in sorted(here.glob("cases_*.py")):
        suite.addTests(loader.loadTestsFromModule(importlib.import_module(path.stem)))
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
