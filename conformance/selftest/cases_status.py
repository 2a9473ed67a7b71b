# SPDX-License-Identifier: BSD-2-Clause
"""Exit status and the one line that says why; which tests run."""
import json
import pathlib
import re
import unittest

import scripted


class Status(scripted.WithAFolder):
    def test_0_where_all_conforms(self):
        seen = scripted.run("--filter", "pd.Conforms")
        self.assertEqual((seen.returncode, seen.stderr), (0, ""))
        self.assertRegex(seen.stdout, r"(?m)^\d+ clauses: 1 CONFORMS, 0 DEVIATES \(0 expected\), .*; 1 tests in ")

    def test_1_where_something_deviates(self):
        seen = scripted.run("--filter", "pd.*")
        self.assertEqual(seen.returncode, 1)
        self.assertIn("DEVIATES pd.Deviates: scripted.cc:", seen.stderr)
        self.assertIn("DEVIATES ibv_dealloc_pd.zero (ibv_alloc_pd(3), RETURN VALUE)\n  promised: ", seen.stdout)
        self.assertIn("expected: a thousand; seen: one", seen.stdout)

    def test_0_where_all_deviations_are_expected(self):
        known = self.expectations("".join(map(scripted.deviation, scripted.DEVIATING)))
        seen = scripted.run("--expect", known)
        self.assertEqual(seen.returncode, 0, seen.stdout)
        self.assertIn("4 DEVIATES (4 expected)", seen.stdout)

    def test_1_where_one_is_not_expected(self):
        self.assertEqual(scripted.run("--expect", self.expectations(scripted.deviation(scripted.DEVIATING[0]))).returncode, 1)

    def test_an_expected_deviation_that_no_longer_occurs_is_told(self):
        known = self.expectations(scripted.deviation("ibv_alloc_pd.pointer"))
        seen = scripted.run("--filter", "pd.Conforms", "--expect", known, "--report-dir", self.folder)
        self.assertEqual(seen.returncode, 0)
        self.assertIn("expected deviation no longer occurs: ibv_alloc_pd.pointer", seen.stdout)
        self.assertEqual(json.loads((self.folder / "report.json").read_text())["stale_expectations"],
                         ["ibv_alloc_pd.pointer"])
        self.assertIn("no longer occurs: <code>ibv_alloc_pd.pointer", (self.folder / "report.html").read_text())

    def test_2_with_one_line_of_why_where_it_cannot_run(self):
        unreadable = self.folder / "none.toml"
        for options, why in (
                (("--device", "no-such-device"), "no-such-device"),
                (("--port", 200), "port 200"),
                (("--gid-index", 60000), "60000"),
                (("--filter", "no.such"), "no test is selected"),
                (("--expect", unreadable), str(unreadable)),
                (("--expect", self.expectations(scripted.deviation("no.such"))), "no.such"),
                (("--expect", self.expectations("[[deviation]\n")), "line 1"),
                (("--expect", self.expectations(scripted.deviation("ibv_alloc_pd.many", ""))), "needs a reason and a source"),
                (("--peer", "127.0.0.1:1"), "127.0.0.1, port 1"),
                (("--report-dir", "/dev/null/report", "--filter", "pd.Conforms"), "/dev/null/report")):
            with self.subTest(options=options):
                seen = scripted.run(*options)
                self.assertEqual(seen.returncode, 2, seen)
                self.assertIn(why, seen.stderr)
                self.assertEqual(seen.stderr.count("\n"), 1, seen.stderr)

    def test_2_for_a_bad_command_line(self):
        for options in (("--no-such-option",), ("--chapter", "nowhere"), ("--jobs", "0"), ("--time-scale", "0"),
                        ("compare", "one.json")):
            with self.subTest(options=options):
                seen = scripted.run(*options)
                self.assertEqual(seen.returncode, 2)
                self.assertNotEqual(seen.stderr, "")


class Selection(unittest.TestCase):
    def listed(self, *options):
        seen = scripted.run("--list", *options)
        self.assertEqual(seen.returncode, 0)
        return {line.split()[0] for line in seen.stdout.splitlines()[:-1] if not line.startswith(" ")}

    def test_is_what_the_options_say(self):
        everything = self.listed("--allow-disruptive")
        self.assertEqual(everything - self.listed(),
                         {"cq.IsDisruptive", "order.Waits", "order.IsFlaky", "order.NamesValues", "order.BreaksTheDriver",
                          "order.FillsTheDisk", "order.CannotBeKilled", "order.CausesAReset", "order.UsesTheDevice",
                          "order.UsesTheDeviceAgain"})
        self.assertEqual(everything - self.listed("--allow-disruptive", "--quick"), {"cq.IsSlow"})
        self.assertEqual(self.listed("--chapter", "mr"), {"mr.Crashes"})
        self.assertEqual(self.listed("--filter", "pd.*-*Dev*"),
                         {"pd.Conforms", "pd.EndsInOneOfTwo", "pd.IsNotClaimedInOneOfThree"})

    def test_help_names_every_option_of_the_manual(self):
        manual = (pathlib.Path(__file__).resolve().parents[2] / "docs/CONFORMANCE.md").read_text()
        rows = "\n".join(line for line in manual.splitlines() if line.startswith("| `--"))
        documented = set(re.findall(r"`(--[a-z-]+)", rows))
        offered = set(re.findall(r"^ +(?:-h,)?(--[a-z-]+)", scripted.run("--help").stdout, re.M)) - {"--help"}
        self.assertEqual(documented, offered)
