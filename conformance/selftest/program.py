#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The program from outside: exit status, the line of progress, the reports, what `compare` says.

    conformance/selftest/program.py SCRIPTED [verbena run --]

SCRIPTED is main() of verbs-conformance with the tests of scripted.cc, which have every verdict; the device comes from
the command before it.
"""
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

TIME = 60  # seconds for one run
VERDICTS = {"CONFORMS", "DEVIATES", "NOT CLAIMED", "NOT TESTED"}
DEVIATING = ("ibv_dealloc_pd.zero", "ibv_alloc_pd.many", "ibv_dealloc_pd.busy-mr", "ibv_reg_mr.fields")
scripted, prefix = None, []


def run(*options, **more):
    return subprocess.run([*prefix, scripted, *map(str, options)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", errors="replace", timeout=TIME, **more)


def shrink(report):
    program = pathlib.Path(__file__).resolve().parents[1] / "expectations/shrink"
    return subprocess.run([sys.executable, program, report], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=TIME, check=True).stdout


def deviation(clause, reason="It is <so> & \"known\".", more=""):
    return f"[[deviation]]\nclause = \"{clause}\"\nreason = {json.dumps(reason)}\nsource = \"its sheet\"\n{more}"


class Page(html.parser.HTMLParser):
    """Checks that elements are closed; collects references to anything outside."""

    EMPTY = {"meta", "input", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.outside, self.rows, self.ids, self.jumps, self.text = [], [], [], set(), set(), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in self.EMPTY:
            self.open.append(tag)
        if "data-v" in attrs:
            self.rows.append(attrs)
        self.ids.update(value for name, value in attrs.items() if name == "id")
        for name, value in attrs.items():
            if name == "href" and value.startswith("#"):
                self.jumps.add(value[1:])
            elif (name in ("src", "href", "srcset", "action", "data", "background")
                  or tag in ("link", "iframe", "object")):
                self.outside.append((tag, name, value))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> where {self.open} are open")

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "style" and re.search(r"url\(|@import", data):
            self.outside.append(("style", "url", data))
        if self.open and self.open[-1] == "script" and re.search(r"https?:|fetch|XMLHttp|import", data):
            self.outside.append(("script", "", data))


class WithAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="conformance-program.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def expectations(self, text):
        path = self.folder / f"expectations-{len(list(self.folder.iterdir()))}.toml"
        path.write_text(text)
        return path


class Status(WithAFolder):
    def test_0_where_all_conforms(self):
        seen = run("--filter", "pd.Conforms")
        self.assertEqual((seen.returncode, seen.stderr), (0, ""))
        self.assertRegex(seen.stdout, r"(?m)^\d+ clauses: 1 CONFORMS, 0 DEVIATES \(0 expected\), .*; 1 tests in ")

    def test_1_where_something_deviates(self):
        seen = run("--filter", "pd.*")
        self.assertEqual(seen.returncode, 1)
        self.assertIn("DEVIATES pd.Deviates: scripted.cc:", seen.stderr)
        self.assertIn("DEVIATES ibv_dealloc_pd.zero (ibv_alloc_pd(3), RETURN VALUE)\n  promised: ", seen.stdout)
        self.assertIn("expected: a thousand; seen: one", seen.stdout)

    def test_0_where_all_deviations_are_expected(self):
        known = self.expectations("".join(map(deviation, DEVIATING)))
        seen = run("--expect", known)
        self.assertEqual(seen.returncode, 0, seen.stdout)
        self.assertIn("4 DEVIATES (4 expected)", seen.stdout)

    def test_1_where_one_is_not_expected(self):
        self.assertEqual(run("--expect", self.expectations(deviation(DEVIATING[0]))).returncode, 1)

    def test_an_expected_deviation_that_no_longer_occurs_is_told(self):
        known = self.expectations(deviation("ibv_alloc_pd.pointer"))
        seen = run("--filter", "pd.Conforms", "--expect", known, "--report-dir", self.folder)
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
                (("--expect", self.expectations(deviation("no.such"))), "no.such"),
                (("--expect", self.expectations("[[deviation]\n")), "line 1"),
                (("--expect", self.expectations(deviation("ibv_alloc_pd.many", ""))), "needs a reason and a source"),
                (("--peer", "127.0.0.1:1"), "127.0.0.1, port 1"),
                (("--report-dir", "/dev/null/report", "--filter", "pd.Conforms"), "/dev/null/report")):
            with self.subTest(options=options):
                seen = run(*options)
                self.assertEqual(seen.returncode, 2, seen)
                self.assertIn(why, seen.stderr)
                self.assertEqual(seen.stderr.count("\n"), 1, seen.stderr)

    def test_2_for_a_bad_command_line(self):
        for options in (("--no-such-option",), ("--chapter", "nowhere"), ("--jobs", "0"), ("--time-scale", "0"),
                        ("compare", "one.json")):
            with self.subTest(options=options):
                seen = run(*options)
                self.assertEqual(seen.returncode, 2)
                self.assertNotEqual(seen.stderr, "")


class Selection(unittest.TestCase):
    def listed(self, *options):
        seen = run("--list", *options)
        self.assertEqual(seen.returncode, 0)
        return {line.split()[0] for line in seen.stdout.splitlines()[:-1] if not line.startswith(" ")}

    def test_is_what_the_options_say(self):
        everything = self.listed("--allow-disruptive")
        self.assertEqual(everything - self.listed(), {"cq.IsDisruptive"})
        self.assertEqual(everything - self.listed("--allow-disruptive", "--quick"), {"cq.IsSlow"})
        self.assertEqual(self.listed("--chapter", "mr"), {"mr.Crashes"})
        self.assertEqual(self.listed("--filter", "pd.*-*Dev*"), {"pd.Conforms", "pd.EndsInOneOfTwo"})

    def test_help_names_every_option_of_the_manual(self):
        manual = (pathlib.Path(__file__).resolve().parents[2] / "docs/CONFORMANCE.md").read_text()
        rows = "\n".join(line for line in manual.splitlines() if line.startswith("| `--"))
        documented = set(re.findall(r"`(--[a-z-]+)", rows))
        offered = set(re.findall(r"^ +(?:-h,)?(--[a-z-]+)", run("--help").stdout, re.M)) - {"--help"}
        self.assertEqual(documented, offered)


class Reports(WithAFolder):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="conformance-program.")
        cls.addClassCleanup(folder.cleanup)
        cls.reports = pathlib.Path(folder.name)
        known = cls.reports / "known.toml"
        known.write_text(deviation("ibv_alloc_pd.many") + deviation("ibv_alloc_pd.pointer"))
        cls.ran = run("--expect", known, "--report-dir", cls.reports / "made" / "here", "--jobs", 2)
        cls.reports = cls.reports / "made" / "here"
        cls.json = json.loads((cls.reports / "report.json").read_text(encoding="utf-8"))

    def clause(self, name):
        return next(clause for clause in self.json["clauses"] if clause["id"] == name)

    def test_json_has_what_the_manual_says(self):
        report = self.json
        self.assertEqual(list(report)[:4], ["schema", "device", "summary", "clauses"])
        self.assertEqual(set(report), {"schema", "device", "summary", "clauses", "tests", "chapters",
                                       "stale_expectations", "run"})
        self.assertEqual(report["schema"], "verbs-conformance/1")
        self.assertEqual(list(report["device"])[0], "name")
        self.assertLessEqual({"name", "port", "gid", "link_layer", "max_qp"}, set(report["device"]))
        self.assertTrue(all(isinstance(value, str) for value in report["device"].values()))
        for clause in report["clauses"]:
            self.assertEqual(set(clause) - {"expected"}, {"id", "chapter", "level", "promise", "source", "applies",
                                                          "seen_in", "verdict", "tests", "detail"})
            self.assertIn(clause["verdict"], VERDICTS)
            self.assertIsInstance(clause["tests"], list)
        chapters = [chapter["key"] for chapter in report["chapters"]]
        self.assertTrue(all(clause["chapter"] in chapters for clause in report["clauses"]))
        for test in report["tests"]:
            self.assertEqual(set(test) - {"calls"}, {"name", "verdict", "milliseconds", "clauses", "detail"})
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
        self.assertEqual(skipped, {"pd.DeviatesInOneOfTwo", "cq.IsNotClaimed", "cq.IsNotTested"})
        self.assertEqual((int(suite.get("failures")), int(suite.get("skipped"))), (len(failed), len(skipped)))
        self.assertIn("getpid()", cases["pd.Deviates"].find("failure").text)
        known = cases["pd.DeviatesInOneOfTwo"]
        self.assertEqual(known.find("skipped").get("message"), "expected to deviate: It is <so> & \"known\".")
        self.assertIn("seen: one", known.find("system-out").text)
        self.assertEqual(cases["cq.IsNotClaimed"].find("skipped").get("message"), "NOT CLAIMED: no \"such\" thing")
        self.assertIsNone(cases["pd.Conforms"].find("*"))

    def test_html_is_one_file_with_every_clause(self):
        text = (self.reports / "report.html").read_text(encoding="utf-8")
        page = Page(text)
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
        for name, value in self.json["device"].items():
            self.assertIn(name, page.text)
            self.assertIn(value, page.text)

    def test_html_shows_text_as_text(self):
        text = (self.reports / "report.html").read_text(encoding="utf-8")
        self.assertEqual(text.count("<script"), 1)
        self.assertIn("&lt;script src=&quot;http://nowhere&quot;&gt;&amp;]]&gt;&lt;/pre&gt;   \u00e4 \ufffd|", text)
        self.assertIn("It is &lt;so&gt; &amp; &quot;known&quot;.", text)


class Comparison(WithAFolder):
    def report(self, name, *options):
        run("--report-dir", self.folder / name, *options)
        return self.folder / name / "report.json"

    def test_lists_what_differs_and_nothing_else(self):
        one, two = self.report("one", "--chapter", "pd"), self.report("two", "--filter", "pd.Conforms:cq.*")
        page = self.folder / "difference.html"
        seen = run("compare", one, two, "--html", page)
        self.assertEqual(seen.returncode, 0, seen)
        first, second = (json.loads(path.read_text()) for path in (one, two))
        differ = {a["id"]: (a["verdict"], b["verdict"]) for a, b in zip(first["clauses"], second["clauses"])
                  if a["verdict"] != b["verdict"]}
        self.assertIn("ibv_dealloc_pd.zero", differ)
        self.assertIn(f"\n{len(differ)} clauses differ\n", seen.stdout)
        listed = {line.split()[0]: tuple(re.split(r" {2,}", line.strip())[1:])
                  for line in seen.stdout.split("clauses differ\n")[1].splitlines()}
        self.assertEqual(listed, differ)
        for column, key in (("CONFORMS", "conforms"), ("DEVIATES", "deviates"), ("NOT TESTED", "not_tested")):
            self.assertRegex(seen.stdout, rf"(?m)^{column} +{first['summary'][key]} +{second['summary'][key]} *$")
        text = page.read_text(encoding="utf-8")
        parsed = Page(text)
        self.assertEqual((parsed.open, parsed.outside), ([], []))
        self.assertEqual(len(parsed.rows), len(differ))
        self.assertTrue(all(f"<code>{name}</code>" in text for name in differ))
        self.assertIn("&lt;script src=", text)

    def test_equal_reports_do_not_differ(self):
        one = self.report("one", "--chapter", "pd")
        self.assertIn("\n0 clauses differ\n", run("compare", one, one).stdout)

    def test_reduced_reports_differ_as_the_whole_ones_do(self):
        reports = self.report("one", "--chapter", "pd"), self.report("two", "--filter", "pd.Conforms:cq.*")
        page, promises = self.folder / "difference.html", re.compile(r"<code>.*?</code><br>.*?</td>")
        whole = run("compare", *reports, "--html", page).stdout, promises.findall(page.read_text(encoding="utf-8"))
        for report in reports:
            ids = [clause["id"] for clause in json.loads(report.read_text())["clauses"]]
            report.write_text(shrink(report))
            lines = [line for line in report.read_text().splitlines() if line.startswith('  {"id": ')]
            self.assertEqual([json.loads(line.rstrip(","))["id"] for line in lines], ids)
            self.assertEqual(shrink(report), report.read_text(), "reduced twice")
        reduced = run("compare", *reports, "--html", page).stdout, promises.findall(page.read_text(encoding="utf-8"))
        self.assertEqual(reduced, whole)
        self.assertIn("A thousand PDs, or max_pd if that is fewer", "".join(reduced[1]))

    def test_only_a_report_is_reduced(self):
        bad = self.folder / "bad.json"
        for text in ("", "{}", "[]", '{"clauses": [1]}'):
            bad.write_text(text)
            with self.subTest(text=text), self.assertRaises(subprocess.CalledProcessError) as refused:
                shrink(bad)
            self.assertEqual(refused.exception.stderr.count("\n"), 1)

    def test_a_clause_that_one_report_lacks_differs(self):
        one = self.report("one", "--filter", "pd.Conforms")
        report = json.loads(one.read_text())
        report["clauses"] = report["clauses"][1:]
        report["device"]["name"] = "other"
        two = self.folder / "two.json"
        two.write_text(json.dumps(report))
        seen = run("compare", one, two).stdout
        self.assertIn("\n1 clauses differ\n", seen)
        self.assertRegex(seen, r" - *\n")

    def test_what_is_no_report_is_refused_in_one_line(self):
        one, bad = self.report("one", "--filter", "pd.Conforms"), self.folder / "bad.json"
        for text in ("", "{", "{}", "[]", "null", '{"clauses": 1, "device": 2}', '{"clauses": [1], "device": {}}',
                     '{"clauses": [{"id": 1}], "device": {}}'):
            with self.subTest(text=text):
                bad.write_text(text)
                seen = run("compare", one, bad)
                self.assertEqual(seen.returncode, 2)
                self.assertEqual(seen.stderr.count("\n"), 1, seen.stderr)
        self.assertEqual(run("compare", one, self.folder / "none.json").returncode, 2)
        self.assertEqual(run("compare", one, one, "--html", "/dev/null/page").returncode, 2)


class ProgressLine(unittest.TestCase):
    def test_shows_on_a_terminal_how_far_it_is_and_the_time_left(self):
        near, far = os.openpty()
        process = subprocess.Popen([*prefix, scripted, "--jobs", "1"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=far)
        os.close(far)
        text = b""
        try:
            while piece := os.read(near, 4096):
                text += piece
        except OSError:  # Linux: EIO when the last writer is gone
            pass
        finally:
            os.close(near)
            self.assertEqual(process.wait(TIME), 1)
        told = re.findall(rb"\[(\d+)/(\d+)\] about (\d+) s left, ([a-z]+\.[A-Za-z]+)", text)
        self.assertEqual([(int(done), int(total)) for done, total, _, _ in told], [(i, 8) for i in range(1, 9)])
        self.assertEqual(told[-1][2], b"1")
        self.assertIn(b"DEVIATES pd.Deviates: ", text)
        self.assertTrue(text.endswith(b"\r\x1b[K"))


if __name__ == "__main__":
    scripted, prefix = sys.argv[1], sys.argv[2:]
    unittest.main(argv=sys.argv[:1], verbosity=2)
