# SPDX-License-Identifier: BSD-2-Clause
"""Runs one module of rdma-core's pyverbs suite, unmodified, in this process; started by run_pyverbs.py under `verbena run`.

  run_module.py SUITE MODULE DEVICE REPORT DONE

Appends one JSON object per line to REPORT: {"begin": test} and {"end": test, "outcome": ..., "text": ...}, so that
the reader knows which test was running if this process dies. Leaves out the tests that DONE names, one a line.
"""

import importlib
import json
import os
import sys
import types
import unittest

sys.dont_write_bytecode = True


class Report(unittest.TestResult):
    def __init__(self, path):
        super().__init__()
        self._file = open(path, "a")
        self._pid = os.getpid()
        self._seen = None  # the worst outcome of the running test so far

    def _write(self, **line):
        if os.getpid() != self._pid:  # a child that a test forked
            return
        print(json.dumps(line), file=self._file, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self._seen = None
        self._write(begin=name_of(test))

    def stopTest(self, test):
        outcome, text = self._seen or ("pass", "")
        self._write(end=name_of(test), outcome=outcome, text=text)
        super().stopTest(test)

    def _is(self, test, outcome, text):
        if not isinstance(test, unittest.TestCase):  # setUpClass and the like, outside of any test
            self._write(end=str(test), outcome=outcome, text=text)
        elif self._seen is None or self._seen[0] == "skip":
            self._seen = (outcome, text)

    def addSkip(self, test, reason):
        self._is(test, "skip", reason)

    def addFailure(self, test, error):
        self._is(test, "fail", self._exc_info_to_string(error, test))

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self._is(test, "fail", self._exc_info_to_string(error, test))

    def addExpectedFailure(self, test, error):
        pass

    def addUnexpectedSuccess(self, test):
        self._is(test, "fail", "unexpected success")


def name_of(test):
    return test.id().removeprefix("tests.")


def tests_in(suite):
    for entry in suite:
        if isinstance(entry, unittest.TestSuite):
            yield from tests_in(entry)
        else:
            yield entry


def main():
    suite, module, device, report, done = sys.argv[1:]
    sys.path[0] = suite  # the modules use `from args_parser import parser`, too
    # The package's own __init__.py imports every module, the vendors' included. Here it is an empty package.
    package = types.ModuleType("tests")
    package.__path__ = [suite]
    sys.modules["tests"] = package
    parser = importlib.import_module("args_parser").parser
    sys.argv[1:] = ["--dev", device]
    parser.parse_args()
    names = set(open(done).read().split("\n"))
    chosen = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"tests.{module}"))
    unittest.TestSuite(test for test in tests_in(chosen) if name_of(test) not in names).run(Report(report))


if __name__ == "__main__":
    main()
