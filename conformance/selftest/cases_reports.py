# SPDX-License-Identifier: BSD-2-Clause
"""The reports: JSON, JUnit, the page, the words in them."""
import json
import pathlib
import re
import tempfile
import xml.etree.ElementTree

import scripted


class Reports(scripted.WithAFolder):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="conformance-program.")
        cls.addClassCleanup(folder.cleanup)
        cls.reports = pathlib.Path(folder.name)
        known = cls.reports / "known.toml"
        known.write_text(scripted.deviation("ibv_alloc_pd.many") + scripted.deviation("ibv_alloc_pd.pointer"))
        cls.ran = scripted.run("--expect", known, "--report-dir", cls.reports / "made" / "here", "--jobs", 2)
        cls.reports = cls.reports / "made" / "here"
        cls.json = json.loads((cls.reports / "report.json").read_text(encoding="utf-8"))

    def clause(self, name):
        return next(clause for clause in self.json["clauses"] if clause["id"] == name)

    def test_json_has_what_the_manual_says(self):
        report = self.json
        self.assertEqual(list(report)[:5], ["schema", "provenance", "device", "summary", "clauses"])
        self.assertEqual(set(report), {"schema", "provenance", "device", "summary", "clauses", "tests", "chapters",
                                       "stale_expectations", "run"})
        self.assertEqual(report["schema"], "verbs-conformance/2")
        self.assertLessEqual({"suite_version", "suite_commit", "clauses_sha256", "seed", "kernel", "machine", "driver",
                              "driver_version", "firmware", "rdma_core", "libibverbs", "librdmacm", "provider"},
                             set(report["provenance"]))
        self.assertRegex(report["provenance"]["clauses_sha256"], "^[0-9a-f]{64}$")
        self.assertTrue(all(report["provenance"].values()), report["provenance"])
        self.assertEqual(list(report["device"])[0], "name")
        self.assertLessEqual({"name", "port", "gid", "link_layer", "max_qp"}, set(report["device"]))
        self.assertTrue(all(isinstance(value, str) for value in report["device"].values()))
        for clause in report["clauses"]:
            self.assertEqual("layer" in clause, clause["verdict"] == "DEVIATES")
            self.assertEqual(set(clause) - {"expected", "layer"}, {"id", "chapter", "level", "promise", "source", "applies",
                                                                   "seen_in", "verdict", "tests", "detail"})
            self.assertIn(clause["verdict"], scripted.VERDICTS)
            self.assertIsInstance(clause["tests"], list)
        chapters = [chapter["key"] for chapter in report["chapters"]]
        self.assertTrue(all(clause["chapter"] in chapters for clause in report["clauses"]))
        for test in report["tests"]:
            self.assertEqual(set(test) - {"calls", "deviating"}, {"name", "verdict", "milliseconds", "clauses", "detail"})
            self.assertEqual("calls" in test, test["verdict"] == "DEVIATES")
        self.assertEqual(set(report["run"]), {"command", "began", "seconds"})
        self.assertRegex(report["run"]["began"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertIn("--jobs 2", report["run"]["command"])

    def test_json_has_the_verdicts(self):
        for name, verdict, detail in (
                ("ibv_alloc_pd.pointer", "CONFORMS", ""),
                ("ibv_alloc_pd.several", "CONFORMS", ""),
                ("ibv_dealloc_pd.zero", "DEVIATES", "Deviates: scripted.cc:"),
                ("ibv_alloc_pd.many", "DEVIATES", "seen: one"),
                ("ibv_dealloc_pd.busy-mr", "DEVIATES", "seen: none"),
                ("ibv_dealloc_pd.busy-qp", "NOT TESTED", "a deviation ended the test"),
                ("ibv_alloc_td.pointer", "CONFORMS", ""),
                ("ibv_alloc_parent_domain.td", "NOT CLAIMED", "no domains"),
                ("ibv_dealloc_td.zero", "NOT TESTED", "the test ended before it came to this clause"),
                ("ibv_reg_mr.fields", "DEVIATES",
                 "Crashes: killed by signal Segmentation fault; its last call: getppid()"),
                ("ibv_create_cq.beyond-max", "NOT TESTED", "no such <machine>"),
                ("ibv_reg_mr.lkey", "NOT TESTED", "")):
            with self.subTest(clause=name):
                self.assertEqual(self.clause(name)["verdict"], verdict)
                self.assertIn(detail, self.clause(name)["detail"])
        self.assertEqual(self.clause("ibv_create_cq.max")["tests"], ["cq.IsNotClaimed", "cq.IsSlow", "cq.IsDisruptive"])
        self.assertIn("1 of 3 tests not selected", self.clause("ibv_create_cq.max")["detail"])
        self.assertEqual(self.clause("ibv_alloc_pd.many")["expected"],
                         {"reason": "It is <so> & \"known\".", "source": "its sheet"})
        self.assertNotIn("expected", self.clause("ibv_dealloc_pd.zero"))
        self.assertEqual(self.json["stale_expectations"], ["ibv_alloc_pd.pointer"])
        calls = next(test["calls"] for test in self.json["tests"] if test["name"] == "pd.Deviates")
        self.assertEqual(calls[0], "getpid() ...")

    def test_json_counts_right(self):
        counted = [clause["verdict"] for clause in self.json["clauses"]]
        summary = self.json["summary"]
        self.assertEqual(summary["clauses"], len(counted))
        for key, verdict in (("conforms", "CONFORMS"), ("deviates", "DEVIATES"), ("not_claimed", "NOT CLAIMED"),
                             ("not_tested", "NOT TESTED")):
            self.assertEqual(summary[key], counted.count(verdict), key)
        self.assertEqual((summary["expected_deviations"], summary["unexpected_deviations"]), (1, 3))
        self.assertEqual(summary["tests"], len(self.json["tests"]))
        self.assertEqual(self.ran.returncode, 1)
        self.assertIn(f"{summary['clauses']} clauses: {summary['conforms']} CONFORMS, 4 DEVIATES (1 expected), ",
                      self.ran.stdout)

    def test_junit_is_well_formed_and_counts_right(self):
        suite = xml.etree.ElementTree.parse(self.reports / "report.xml").getroot().find("testsuite")
        cases = {case.get("classname") + "." + case.get("name"): case for case in suite.iter("testcase")}
        self.assertEqual(set(cases), {test["name"] for test in self.json["tests"]})
        self.assertEqual(int(suite.get("tests")), len(cases))
        failed = {name for name, case in cases.items() if case.find("failure") is not None}
        skipped = {name for name, case in cases.items() if case.find("skipped") is not None}
        self.assertEqual(failed, {"pd.Deviates", "pd.EndsInOneOfTwo", "mr.Crashes"})
        self.assertEqual(skipped, {"pd.DeviatesInOneOfTwo", "pd.IsNotClaimedInOneOfThree", "cq.IsNotClaimed",
                                   "cq.IsNotTested"})
        self.assertEqual((int(suite.get("failures")), int(suite.get("skipped"))), (len(failed), len(skipped)))
        self.assertIn("getpid()", cases["pd.Deviates"].find("failure").text)
        known = cases["pd.DeviatesInOneOfTwo"]
        self.assertEqual(known.find("skipped").get("message"), "expected to deviate: It is <so> & \"known\".")
        self.assertIn("seen: one", known.find("system-out").text)
        self.assertEqual(cases["cq.IsNotClaimed"].find("skipped").get("message"), "NOT CLAIMED: no \"such\" thing")
        self.assertIsNone(cases["pd.Conforms"].find("*"))

    def test_html_is_one_file_with_every_clause(self):
        text = (self.reports / "report.html").read_text(encoding="utf-8")
        page = scripted.Page(text)
        self.assertEqual(page.open, [])
        self.assertEqual(page.outside, [])
        self.assertEqual(page.jumps - page.ids, set())
        self.assertLessEqual({chapter["key"] for chapter in self.json["chapters"]}, page.jumps)
        self.assertEqual(len(page.rows), len(self.json["clauses"]))
        for clause in self.json["clauses"]:
            self.assertIn(f"<code>{clause['id']}</code>", text)
        kinds = [row["data-v"] for row in page.rows]
        self.assertEqual((kinds.count("DEVIATES"), kinds.count("EXPECTED")), (3, 1))
        self.assertLessEqual(set(kinds), set(re.findall(r'<input type="checkbox" checked value="([A-Z-]+)"', text)))
        for name, value in (self.json["device"] | self.json["provenance"]).items():
            self.assertIn(name, page.text)
            self.assertIn(value, page.text)

    def test_html_shows_text_as_text(self):
        text = (self.reports / "report.html").read_text(encoding="utf-8")
        self.assertEqual(text.count("<script"), 1)
        self.assertIn("&lt;script src=&quot;http://nowhere&quot;&gt;&amp;]]&gt;&lt;/pre&gt;   \u00e4 \ufffd|", text)
        self.assertIn("It is &lt;so&gt; &amp; &quot;known&quot;.", text)


class Words(scripted.WithAFolder):
    def test_an_expectation_names_its_values(self):
        seen = scripted.run("--allow-disruptive", "--filter", "order.NamesValues")
        self.assertIn("IBV_WC_REM_ACCESS_ERR", seen.stderr)
        self.assertNotRegex(seen.stderr, r"Which is: \d")
