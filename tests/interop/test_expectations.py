# SPDX-License-Identifier: BSD-2-Clause
"""A result that is not as expected is reported, in either direction."""

import unittest

import run_pyverbs  # noqa: F401 (finds the harness)
from expectations import differences, read

PASSED, SKIPPED, FAILED = ("pass", ""), ("skip", "no feature"), ("fail", "AssertionError")


def told(expected, **seen):
    return list(differences(expected, seen))


class Differences(unittest.TestCase):
    def test_as_expected(self):
        self.assertEqual(told({"b": ("skip", "r"), "c": ("fail", "r")}, a=PASSED, b=SKIPPED, c=FAILED), [])

    def test_a_failure_nobody_expects(self):
        self.assertEqual(told({}, a=FAILED), ["a: fail: AssertionError"])

    def test_a_skip_nobody_expects(self):
        self.assertEqual(told({}, a=SKIPPED), ["a: skip: no feature"])

    def test_a_pass_instead_of_a_skip(self):
        self.assertEqual(told({"a": ("skip", "r")}, a=PASSED), ["a: pass (expected skip: r)"])

    def test_a_skip_instead_of_a_failure(self):
        self.assertEqual(told({"a": ("fail", "r")}, a=SKIPPED), ["a: skip (expected fail: r): no feature"])

    def test_a_crash_is_no_expected_failure(self):
        self.assertEqual(len(told({"a": ("fail", "r")}, a=("crash, signal 11", ""))), 1)

    def test_maybe_takes_pass_and_skip(self):
        self.assertEqual(told({"a": ("maybe", "r"), "b": ("maybe", "r")}, a=PASSED, b=SKIPPED), [])

    def test_maybe_takes_no_failure(self):
        self.assertEqual(len(told({"a": ("maybe", "r")}, a=FAILED)), 1)

    def test_a_test_that_is_gone(self):
        self.assertEqual(len(told({"a": ("skip", "r")})), 1)

    def test_the_file_itself_can_be_read(self):
        self.assertTrue(all(reason for _, reason in read(44).values()))

    def test_later_suites_have_more_tests(self):
        self.assertGreater(read(1000).keys(), read(44).keys())


if __name__ == "__main__":
    unittest.main()
