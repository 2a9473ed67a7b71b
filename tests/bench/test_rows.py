# SPDX-License-Identifier: BSD-2-Clause
"""How rows are judged, and that the table names only measures that exist."""
import os
import re
import unittest

from harness import programs, report, rows
from harness.measures import MEASURES, Bench

ROW = rows.Row("send latency 8 B", "us", "ib_send_lat 8", "t_avg", "libfabric shm 8", "mean",
               rows.Goal("<=", 1.0, "first"))


def judged(subject, yardstick, reasons=None):
    samples = {"ib_send_lat 8": [value and {"t_avg": value} for value in subject],
               "libfabric shm 8": [value and {"mean": value} for value in yardstick]}
    return rows.judge(ROW, samples, reasons or {})


class Judge(unittest.TestCase):
    def test_ratio_is_of_medians(self):
        self.assertEqual(judged([1.0, 2.0, 9.0], [4.0, 4.0, 1.0])["ratio"], 0.5)

    def test_goal_met(self):
        self.assertIs(judged([1.0], [1.0])["met"], True)

    def test_goal_missed(self):
        self.assertIs(judged([1.1], [1.0])["met"], False)

    def test_rounds_are_paired(self):
        self.assertEqual(judged([1.0, None, 3.0], [2.0, 1.0, 2.0])["ratio_of_rounds"], {"min": 0.5, "max": 1.5})

    def test_missing_yardstick_leaves_the_goal_unknown(self):
        found = judged([1.0], [], {"libfabric shm 8": "fi_pingpong is not installed"})
        self.assertIsNone(found["met"])
        self.assertIn("fi_pingpong is not installed", report.table([found]))

    def test_failed_rounds_are_told(self):
        found = judged([1.0, None], [1.0, 1.0], {"ib_send_lat 8": "exit status 1"})
        self.assertIn("failed in 1 round(s): exit status 1", report.table([found]))


class NotBuilt(unittest.TestCase):
    def test_the_package_that_is_missing_is_named(self):
        bench = Bench(build="/nowhere", cpus=[0, 1])
        with self.assertRaisesRegex(programs.Unavailable, "rate is not built: it needs libfabric-dev"):
            MEASURES["libfabric tcp rate 64"][0](bench)


class NotInstalled(unittest.TestCase):
    def test_the_command_that_installs_it_is_named(self):
        with self.assertRaisesRegex(programs.Unavailable, re.escape(programs.INSTALL)):
            programs.find("no-such-program")

    def test_that_command_installs_every_yardstick(self):
        script, purpose = programs.INSTALL.split()
        text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", script)).read()
        packages = re.search(r"^ *%s\) echo (.*) ;;$" % purpose, text, re.MULTILINE).group(1).split()
        for package in ("perftest", "ucx-utils", "libfabric-bin", "libfabric-dev"):
            self.assertIn(package, packages)


class Table(unittest.TestCase):
    def test_every_row_names_known_measures(self):
        self.assertEqual([name for name in rows.measures_of(rows.ROWS) if name not in MEASURES], [])

    def test_every_measure_is_in_a_row(self):
        self.assertEqual(sorted(rows.measures_of(rows.ROWS)), sorted(MEASURES))


if __name__ == "__main__":
    unittest.main()
