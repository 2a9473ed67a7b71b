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
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
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
        self.assertEqual(everything - self.listed(),
                         {"cq.IsDisruptive", "order.Waits", "order.IsFlaky", "order.NamesValues", "order.CausesAReset",
                          "order.UsesTheDevice", "order.UsesTheDeviceAgain"})
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
            self.assertIn(clause["verdict"], VERDICTS)
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
        for name, value in (self.json["device"] | self.json["provenance"]).items():
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
        self.assertIn(f"\n{len(differ)} clauses differ, 0 deviate on all", seen.stdout)
        listed = [(line.split()[0], *(re.sub(r" [+!]$", "", part) for part in re.split(r" {2,}", line.strip())[1:]))
                  for line in seen.stdout.split("deviations first\n")[1].splitlines()]
        self.assertEqual({name: (a, b) for name, a, b in listed}, differ)
        deviating = ["DEVIATES" in row for row in listed]
        self.assertEqual(deviating, sorted(deviating, reverse=True), "deviations first")
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
        self.assertIn("\n0 clauses differ, 3 deviate on all", run("compare", one, one).stdout)

    def test_worse_and_better_and_the_exit_status(self):
        one = self.report("one", "--chapter", "pd")
        report = json.loads(one.read_text())
        for clause in report["clauses"]:
            if clause["id"] == "ibv_dealloc_pd.zero":
                clause["verdict"] = "CONFORMS"
            elif clause["id"] == "ibv_alloc_pd.pointer":
                clause["verdict"] = "DEVIATES"
        report["provenance"]["clauses_sha256"] = "0"
        two = self.folder / "two.json"
        two.write_text(json.dumps(report))
        seen = run("compare", one, two, "--no-regressions")
        self.assertEqual(seen.returncode, 1)
        self.assertRegex(seen.stdout, r"(?m)^better than the first \(\+\) +- +1 *$")
        self.assertRegex(seen.stdout, r"(?m)^worse than the first \(!\) +- +1 *$")
        self.assertRegex(seen.stdout, r"(?m)^ibv_alloc_pd.pointer +CONFORMS +DEVIATES ! *$")
        self.assertIn("warning: the reports are of different clauses", seen.stdout)
        self.assertEqual(run("compare", one, two).returncode, 0)
        self.assertEqual(run("compare", one, one, "--no-regressions").returncode, 0)

    def test_filters(self):
        one, two = self.report("one"), self.report("two", "--chapter", "pd")
        for options, has, lacks in ((("--verdict", "DEVIATES"), "ibv_reg_mr.fields", "ibv_create_cq.max"),
                                    (("--verdict", "not tested,conforms"), "ibv_create_cq.max", "ibv_dealloc_pd.zero"),
                                    (("--chapter", "cq"), "ibv_create_cq.max", "ibv_reg_mr.fields"),
                                    (("--level", "choice"), "", "ibv_reg_mr.fields")):
            with self.subTest(options=options):
                seen = run("compare", one, two, *options).stdout.split("deviations first\n")[1]
                self.assertIn(has, seen)
                self.assertNotIn(lacks, seen)

    def test_history_is_one_page_in_the_order_of_the_runs(self):
        page, reports = self.folder / "history.html", []
        for day, verdict in ((3, "CONFORMS"), (1, "CONFORMS"), (2, "DEVIATES")):
            report = json.loads(self.report("one", "--filter", "pd.Conforms").read_text())
            report["run"]["began"] = f"2026-01-0{day}T00:00:00Z"
            for clause in report["clauses"]:
                if clause["id"] == "ibv_alloc_pd.pointer":
                    clause["verdict"] = verdict
            reports.append(self.folder / f"{day}.json")
            reports[-1].write_text(json.dumps(report))
        seen = run("history", *reports, "--html", page)
        self.assertEqual(seen.returncode, 0, seen)
        rows = [line.split() for line in seen.stdout.splitlines()[1:]]
        self.assertEqual([(row[0][8:10], row[4], row[5]) for row in rows],
                         [("01", "0", "0"), ("02", "0", "1"), ("03", "1", "0")])
        parsed = Page(page.read_text(encoding="utf-8"))
        self.assertEqual((parsed.open, parsed.outside), ([], []))
        self.assertIn("1 worse", parsed.text)

    def test_reduced_reports_differ_as_the_whole_ones_do(self):
        reports = self.report("one", "--chapter", "pd"), self.report("two", "--filter", "pd.Conforms:cq.*")
        page, promises = self.folder / "difference.html", re.compile(r"<td><code>.*?</td>")
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
        self.assertIn("\n1 clauses differ, 0 deviate on all", seen)
        self.assertRegex(seen, r" - *\n")

    def test_what_is_no_report_is_refused_in_one_line(self):
        one, bad = self.report("one", "--filter", "pd.Conforms"), self.folder / "bad.json"
        for text in ("", "{", "{}", "[]", "null", '{"clauses": 1, "device": 2}', '{"clauses": [1], "device": {}}',
                     '{"clauses": [{"id": 1}], "device": {}}', '{"schema": "verbs-conformance/3", "clauses": []}',
                     '{"schema": "verbs-conformance/2", "clauses": [{"id": "a.b", "verdict": "FINE"}]}'):
            with self.subTest(text=text):
                bad.write_text(text)
                seen = run("compare", one, bad)
                self.assertEqual(seen.returncode, 2)
                self.assertEqual(seen.stderr.count("\n"), 1, seen.stderr)
                self.assertEqual(run("render", bad).returncode, 2)
        self.assertEqual(run("compare", one, self.folder / "none.json").returncode, 2)
        self.assertEqual(run("compare", one, one, "--html", "/dev/null/page").returncode, 2)


class EndsEarly(WithAFolder):
    """What was found so far is kept, whatever ends the run."""

    def start(self):
        folder = self.folder / "reports"
        process = subprocess.Popen([*prefix, scripted, "--allow-disruptive", "--filter", "pd.Deviates:order.Waits",
                                    "--report-dir", folder, "--jobs", "1"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                                   start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + TIME
        journal = folder / "report.journal"
        while time.monotonic() < deadline:
            if journal.exists() and journal.read_text(errors="replace").count("\n") >= 2:
                return process, folder
            time.sleep(0.01)  # until the first test has ended: bounded by the deadline
        self.fail("no journal")

    def suite(self):
        """The process of the program itself, not of what starts it."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            if words[0] == os.fsencode(scripted) and os.fsencode(self.folder / "reports") in words:
                found.append((entry.name, state[1]))
        children = {pid for pid, _ in found}
        return [int(pid) for pid, parent in found if parent not in children]

    def check(self, folder):
        report = json.loads((folder / "report.json").read_text())
        verdicts = {clause["id"]: clause for clause in report["clauses"]}
        self.assertEqual(verdicts["ibv_dealloc_pd.zero"]["verdict"], "DEVIATES")
        self.assertEqual(verdicts["order.completions"]["verdict"], "NOT TESTED")
        self.assertIn("not run: ", verdicts["order.completions"]["detail"])
        self.assertEqual(report["summary"]["tests"], 1)
        self.assertIn("This report is incomplete", (folder / "report.html").read_text())
        xml.etree.ElementTree.parse(folder / "report.xml")
        return report

    def test_interrupt(self):
        process, folder = self.start()
        for pid in self.suite():
            os.kill(pid, signal.SIGINT)
        out, err = process.communicate(timeout=TIME)
        self.assertEqual(process.returncode, 2, err)
        self.assertIn("interrupted by Interrupt", err.splitlines()[-1])
        self.assertEqual(self.check(folder)["run"]["stopped"], "interrupted by Interrupt")
        self.assertFalse((folder / "report.journal").exists())

    def test_killed_and_rendered_from_its_journal(self):
        process, folder = self.start()
        for pid in self.suite():
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=TIME)
        journal = folder / "report.journal"
        self.assertFalse((folder / "report.json").exists())
        with journal.open("a") as file:
            file.write('{"test": "order.Wai')  # cut off
        seen = run("render", journal)
        self.assertEqual(seen.returncode, 2, seen)
        self.check(folder)
        lines = journal.read_text().splitlines()
        other = self.folder / "other.journal"
        begin = json.loads(lines[0])
        for key, value, why in (("schema", "verbs-conformance-journal/9", "another version"),
                                ("provenance", {"clauses_sha256": "0", "suite_commit": "abc"}, "of commit abc")):
            other.write_text(json.dumps(begin | {key: value}) + "\n")
            refused = run("render", other)
            self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1))
            self.assertIn(why, refused.stderr)

    def test_a_full_disk_at_the_end(self):
        folder = self.folder / "full"
        folder.mkdir()
        (folder / "report.json.new").symlink_to("/dev/full")
        (folder / "report.json").write_text("the former one")
        seen = run("--filter", "pd.Conforms", "--report-dir", folder)
        self.assertEqual(seen.returncode, 2)
        self.assertRegex(seen.stderr, r"^verbs-conformance: cannot write .*report.json: No space left on device; "
                                      r"what was found is in .*report.journal\n$")
        self.assertEqual((folder / "report.json").read_text(), "the former one")
        self.assertEqual(run("render", folder / "report.journal", "--report-dir", self.folder / "elsewhere").returncode, 2)
        self.assertTrue((self.folder / "elsewhere/report.json").exists())

    def test_a_full_disk_before_the_run(self):
        folder = self.folder / "full"
        folder.mkdir()
        (folder / "report.journal").symlink_to("/dev/full")
        seen = run("--filter", "pd.Conforms", "--report-dir", folder)
        self.assertEqual((seen.returncode, seen.stdout, seen.stderr.count("\n")), (2, "", 1))
        self.assertIn("No space left on device", seen.stderr)


class DeviceGoes(WithAFolder):
    """In the midst of a run, on a node of its own."""

    def setUp(self):
        super().setUp()
        self.reports = self.folder / "reports"
        self.environment = os.environ | {"XDG_RUNTIME_DIR": str(self.folder)}
        self.verbena = prefix[0]
        self.node = [*prefix[:2], "--node", "goes", "--"]

    def ended(self, command, *tests):
        """The run in which the event command is `command`."""
        return subprocess.run([*self.node, scripted, "--allow-disruptive", "--jobs", "1", "--report-dir", self.reports,
                               "--filter", ":".join(tests), "--event-command", command], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                              timeout=TIME, env=self.environment)

    def verdicts(self):
        report = json.loads((self.reports / "report.json").read_text())
        return report, {test["name"]: test["verdict"] for test in report["tests"]}

    def check_that_it_stops(self, command, why):
        seen = self.ended(command, "pd.Conforms", "pd.Deviates", "order.CausesAReset", "order.UsesTheDevice*")
        self.assertEqual(seen.returncode, 2, seen)
        self.assertRegex(seen.stderr.splitlines()[-1],
                         rf"^verbs-conformance: after order.UsesTheDevice the device is gone or does not answer: {why}; "
                         r"what was found is in ")
        report, verdicts = self.verdicts()
        self.assertIn("the device is gone or does not answer", report["run"]["stopped"])
        self.assertEqual(verdicts, {"pd.Conforms": "CONFORMS", "pd.Deviates": "DEVIATES",
                                    "order.CausesAReset": "CONFORMS", "order.UsesTheDevice": "DEVIATES"})
        clauses = {clause["id"]: clause["verdict"] for clause in report["clauses"]}
        self.assertEqual((clauses["ibv_alloc_pd.pointer"], clauses["ibv_dealloc_pd.zero"]), ("CONFORMS", "DEVIATES"))
        self.assertIn("This report is incomplete", (self.reports / "report.html").read_text())

    def test_its_link_goes_down(self):
        self.check_that_it_stops(f"{self.verbena} event verbena0 port-down #", "port 1 of .* is not active")

    def test_it_is_removed(self):
        """Something else is in the place of the node."""
        node = '"$VERBENA_NODE"'
        self.check_that_it_stops(f"rm -rf {node} && touch {node} #", "(no RDMA device|ibv_get_device_list: errno).*")


class EventCommand(WithAFolder):
    """--event-command CMD: `CMD EVENT DEVICE PORT`, or `ask`."""

    TEST = ("--allow-disruptive", "--filter", "order.CausesAReset")

    def detail(self, *options, **more):
        seen = run(*self.TEST, "--report-dir", self.folder, *options, **more)
        self.assertEqual(seen.returncode, 0, seen)
        test, = json.loads((self.folder / "report.json").read_text())["tests"]
        return test["verdict"], test["detail"]

    def test_is_run_with_event_device_and_port(self):
        said, command = self.folder / "said", self.folder / "command"
        command.write_text(f"#!/bin/sh\nprintf '%s,' \"$@\" >{said}\n")
        command.chmod(0o755)
        self.assertEqual(self.detail("--event-command", f"{command} one"), ("CONFORMS", ""))
        self.assertEqual(said.read_text(), "one,reset,verbena0,1,")

    def test_without_it_nothing_is_tested(self):
        self.assertEqual(self.detail(), ("NOT TESTED", "only an operator can cause reset: --event-command"))

    def test_that_fails_is_a_gap_with_its_status(self):
        for command, status in (("false", 1), ("/no/such/command", 127), ("kill -9 $$;", 137)):
            with self.subTest(command=command):
                verdict, detail = self.detail("--event-command", command)
                self.assertEqual(verdict, "NOT TESTED")
                self.assertRegex(detail, rf"^'.* reset verbena0 1' ends with status {status}$")

    def test_that_does_not_end_is_killed(self):
        verdict, detail = self.detail("--event-command", "exec sleep 1000 #", "--time-scale", "0.1")
        self.assertEqual((verdict, detail), ("NOT TESTED", "'exec sleep 1000 # reset verbena0 1' does not end within 2 s"))

    def test_ask_without_a_terminal_is_a_gap(self):
        self.assertEqual(self.detail("--event-command", "ask", start_new_session=True),
                         ("NOT TESTED", "there is no terminal to ask on"))

    def test_ask_says_on_the_terminal_what_to_do(self):
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(prefix[0], [*prefix, scripted, *self.TEST, "--event-command", "ask"])
        said = b""
        try:
            while piece := os.read(terminal, 4096):
                said += piece
        except OSError:  # Linux: EIO when the last writer is gone
            pass
        finally:
            os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, said)
        self.assertRegex(said.decode(), r"verbs-conformance: now reset the adapter \(.*\) of verbena0, port 1, within 60 s")


class Peer(unittest.TestCase):
    def test_of_another_version_is_refused_in_one_line(self):
        for answer, why in ((struct.pack("<I", 99) + b"what a version 99 says", "version 99"), (b"", "malformed"),
                            (struct.pack("<I", 4), "malformed")):
            with self.subTest(answer=answer), socket.create_server(("127.0.0.1", 0)) as server:
                server.settimeout(TIME)

                def serve():
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(struct.pack("<IB", 1 + len(answer), 0) + answer)
                        connection.recv(4096)  # until it closes

                thread = threading.Thread(target=serve)
                thread.start()
                seen = run("--filter", "pd.Conforms", "--peer", f"127.0.0.1:{server.getsockname()[1]}")
                thread.join(TIME)
                self.assertEqual((seen.returncode, seen.stdout, seen.stderr.count("\n")), (2, "", 1), seen)
                self.assertIn(why, seen.stderr)


class Repeated(WithAFolder):
    def test_tells_the_rate(self):
        state = self.folder / "state"
        seen = run("--allow-disruptive", "--filter", "order.IsFlaky:pd.Conforms", "--repeat", 5, "--report-dir", self.folder,
                   env=os.environ | {"CONFORMANCE_SCRIPTED_STATE": str(state)})
        self.assertEqual(seen.returncode, 1, seen)
        report = json.loads((self.folder / "report.json").read_text())
        clause = next(clause for clause in report["clauses"] if clause["id"] == "order.unsignaled")
        self.assertEqual((clause["verdict"], clause["deviations"]), ("DEVIATES", 3))
        test = next(test for test in report["tests"] if test["name"] == "order.IsFlaky")
        self.assertEqual((test["runs"], test["failures"], report["run"]["rounds"]), (5, 3, 5))
        self.assertIn("in 3 of", (self.folder / "report.html").read_text())

    def test_soak_ends(self):
        seen = run("--filter", "pd.Conforms", "--soak", 0.005, "--report-dir", self.folder)
        self.assertEqual(seen.returncode, 0, seen)
        self.assertGreater(json.loads((self.folder / "report.json").read_text())["run"]["rounds"], 1)

    def test_each_gid_in_a_folder(self):
        seen = run("--filter", "pd.Conforms", "--all-ports", "--all-gids", "--report-dir", self.folder)
        self.assertEqual(seen.returncode, 0, seen)
        gids = {json.loads(path.read_text())["device"]["gid_index"] for path in self.folder.glob("*/report.json")}
        self.assertEqual(len(gids), seen.stdout.count(", GID "))
        self.assertGreater(len(gids), 1)


class Words(WithAFolder):
    def test_an_expectation_names_its_values(self):
        seen = run("--allow-disruptive", "--filter", "order.NamesValues")
        self.assertIn("IBV_WC_REM_ACCESS_ERR", seen.stderr)
        self.assertNotRegex(seen.stderr, r"Which is: \d")


@unittest.skipUnless(shutil.which("ssh-keygen"), "no ssh-keygen")
class Signed(WithAFolder):
    def test_a_report(self):
        key = self.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", key], check=True, timeout=TIME)
        signers = self.folder / "signers"
        signers.write_text("lab@example.org " + key.with_suffix(".pub").read_text())
        seen = run("--filter", "pd.Conforms", "--report-dir", self.folder, "--sign", key)
        self.assertEqual(seen.returncode, 0, seen)
        report = self.folder / "report.json"
        by = "--signers", signers, "--identity", "lab@example.org"
        self.assertEqual((run("verify", report).returncode, run("verify", report, *by).returncode), (0, 0))
        self.assertEqual(run("verify", report, "--signers", signers, "--identity", "other").returncode, 1)
        report.write_text(report.read_text().replace("CONFORMS", "CONFORMED", 1))
        self.assertEqual((run("verify", report).returncode, run("verify", report, *by).returncode), (1, 1))
        self.assertEqual(run("verify", self.folder / "none.json").returncode, 2)

    def test_a_key_is_tried_before_the_run(self):
        seen = run("--filter", "pd.Deviates", "--report-dir", self.folder, "--sign", self.folder / "none")
        self.assertEqual((seen.returncode, seen.stderr.count("\n"), seen.stdout), (2, 1, ""))


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
