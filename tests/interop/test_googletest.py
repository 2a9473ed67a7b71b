# SPDX-License-Identifier: BSD-2-Clause
"""A test program that crashes or hangs costs its reader one test, and no test is lost."""

import os
import pathlib
import sys
import tempfile
import unittest

import run_pyverbs  # noqa: F401 (finds the harness)
import googletest
from harness.failure import Failure

# Speaks as a GoogleTest program does: each test does what its name says.
PROGRAM = '''
import sys, os, time
chosen = [a for a in sys.argv if a.startswith("--gtest_filter=")][0].split("=")[1].split(":")
tests = ["Passes", "Fails", "Skips", "SaysSkip", "Crashes", "Hangs", "Lasts"]
if "--gtest_list_tests" in sys.argv:
    print("Some noise\\nSuite.  # TypeParam = int")
    [print(f"  {test}/0  # GetParam() = 7") for test in tests]
    sys.exit()
for test in tests:
    name = f"Suite.{test}/0"
    if name not in chosen:
        continue
    print("[ RUN      ]", name, flush=True)
    if test == "Crashes":
        os.abort()
    if test == "Hangs":
        time.sleep(1000)
    if test == "SaysSkip":
        print("[     SKIP ] (not here)")
    word = {"Fails": "  FAILED  ", "Skips": "  SKIPPED "}.get(test, "       OK ")
    print(f"what {test} says\\n[{word}] {name}{', where GetParam() = 7' if test == 'Fails' else ''} (3 ms)", flush=True)
'''


def told(lines, **seen):
    with tempfile.NamedTemporaryFile("w", suffix=".expected") as file:
        file.write(lines)
        file.flush()
        return list(googletest.differences(googletest.expected(file.name), {test: (outcome, "") for test, outcome in seen.items()}))


class Run(unittest.TestCase):
    def test_every_test_has_an_outcome(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text(PROGRAM)
            command = [sys.executable, str(program)]
            names = googletest.names(command, os.environ)
            self.assertEqual(names[0], "Suite.Passes/0")
            seen = googletest.run(command, os.environ, names, 2, folder)
        self.assertEqual({name: outcome for name, (outcome, _) in seen.items()},
                         {"Suite.Passes/0": "pass", "Suite.Fails/0": "fail", "Suite.Skips/0": "skip", "Suite.SaysSkip/0": "skip",
                          "Suite.Crashes/0": "crash", "Suite.Hangs/0": "hang", "Suite.Lasts/0": "pass"})
        self.assertIn("what Fails says", seen["Suite.Fails/0"][1])
        self.assertEqual(googletest.counts(seen), "2 pass, 2 skip, 1 fail, 1 crash, 1 hang")

    def test_a_program_that_runs_nothing(self):
        with self.assertRaises(Failure):
            googletest.run(["true"], os.environ, ["Suite.Passes"], 2, "/")


class Expected(unittest.TestCase):
    def test_as_expected(self):
        self.assertEqual(told("b, fail: r\n# a comment\nc*, fail|hang: r\n", a="pass", b="fail", c1="hang", c2="fail"), [])

    def test_otherwise(self):
        self.assertEqual(told("b, fail: r\n", a="fail", b="pass"), ["a: fail", "b: pass (expected fail: r)"])

    def test_a_test_that_is_gone(self):
        self.assertEqual(told("b, fail: r\n", a="pass"), ["b: is expected, but there is no such test"])

    def test_the_first_line_counts(self):
        self.assertEqual(told("a1, crash: r\na*, fail: r\n", a1="crash", a2="fail"), [])

    def test_a_line_without_a_reason(self):
        with self.assertRaises(Failure):
            told("b, fail:\n", b="fail")


if __name__ == "__main__":
    unittest.main()
