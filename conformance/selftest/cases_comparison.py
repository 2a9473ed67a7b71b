# SPDX-License-Identifier: BSD-2-Clause
"""What `compare` and `history` say; reduced reports."""
import json
import re
import subprocess

import scripted


class Comparison(scripted.WithAFolder):
    def report(self, name, *options):
        scripted.run("--report-dir", self.folder / name, *options)
        return self.folder / name / "report.json"

    def test_lists_what_differs_and_nothing_else(self):
        one, two = self.report("one", "--chapter", "pd"), self.report("two", "--filter", "pd.Conforms:cq.*")
        page = self.folder / "difference.html"
        seen = scripted.run("compare", one, two, "--html", page)
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
        parsed = scripted.Page(text)
        self.assertEqual((parsed.open, parsed.outside), ([], []))
        self.assertEqual(len(parsed.rows), len(differ))
        self.assertTrue(all(f"<code>{name}</code>" in text for name in differ))
        self.assertIn("&lt;script src=", text)

    def test_equal_reports_do_not_differ(self):
        one = self.report("one", "--chapter", "pd")
        self.assertIn("\n0 clauses differ, 3 deviate on all", scripted.run("compare", one, one).stdout)

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
        seen = scripted.run("compare", one, two, "--no-regressions")
        self.assertEqual(seen.returncode, 1)
        self.assertRegex(seen.stdout, r"(?m)^better than the first \(\+\) +- +1 *$")
        self.assertRegex(seen.stdout, r"(?m)^worse than the first \(!\) +- +1 *$")
        self.assertRegex(seen.stdout, r"(?m)^ibv_alloc_pd.pointer +CONFORMS +DEVIATES ! *$")
        self.assertIn("warning: the reports are of different clauses", seen.stdout)
        self.assertEqual(scripted.run("compare", one, two).returncode, 0)
        self.assertEqual(scripted.run("compare", one, one, "--no-regressions").returncode, 0)

    def test_filters(self):
        one, two = self.report("one"), self.report("two", "--chapter", "pd")
        for options, has, lacks in ((("--verdict", "DEVIATES"), "ibv_reg_mr.fields", "ibv_create_cq.max"),
                                    (("--verdict", "not tested,conforms"), "ibv_create_cq.max", "ibv_dealloc_pd.zero"),
                                    (("--chapter", "cq"), "ibv_create_cq.max", "ibv_reg_mr.fields"),
                                    (("--level", "choice"), "", "ibv_reg_mr.fields")):
            with self.subTest(options=options):
                seen = scripted.run("compare", one, two, *options).stdout.split("deviations first\n")[1]
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
        seen = scripted.run("history", *reports, "--html", page)
        self.assertEqual(seen.returncode, 0, seen)
        rows = [line.split() for line in seen.stdout.splitlines()[1:]]
        self.assertEqual([(row[0][8:10], row[4], row[5]) for row in rows],
                         [("01", "0", "0"), ("02", "0", "1"), ("03", "1", "0")])
        parsed = scripted.Page(page.read_text(encoding="utf-8"))
        self.assertEqual((parsed.open, parsed.outside), ([], []))
        self.assertIn("1 worse", parsed.text)

    def test_reduced_reports_differ_as_the_whole_ones_do(self):
        reports = self.report("one", "--chapter", "pd"), self.report("two", "--filter", "pd.Conforms:cq.*")
        page, promises = self.folder / "difference.html", re.compile(r"<td><code>.*?</td>")
        whole = scripted.run("compare", *reports, "--html", page).stdout, promises.findall(page.read_text(encoding="utf-8"))
        for report in reports:
            ids = [clause["id"] for clause in json.loads(report.read_text())["clauses"]]
            report.write_text(scripted.shrink(report))
            lines = [line for line in report.read_text().splitlines() if line.startswith('  {"id": ')]
            self.assertEqual([json.loads(line.rstrip(","))["id"] for line in lines], ids)
            self.assertEqual(scripted.shrink(report), report.read_text(), "reduced twice")
        reduced = scripted.run("compare", *reports, "--html", page).stdout, promises.findall(page.read_text(encoding="utf-8"))
        self.assertEqual(reduced, whole)
        self.assertIn("A thousand PDs, or max_pd if that is fewer", "".join(reduced[1]))

    def test_only_a_report_is_reduced(self):
        bad = self.folder / "bad.json"
        for text in ("", "{}", "[]", '{"clauses": [1]}'):
            bad.write_text(text)
            with self.subTest(text=text), self.assertRaises(subprocess.CalledProcessError) as refused:
                scripted.shrink(bad)
            self.assertEqual(refused.exception.stderr.count("\n"), 1)

    def test_a_clause_that_one_report_lacks_differs(self):
        one = self.report("one", "--filter", "pd.Conforms")
        report = json.loads(one.read_text())
        report["clauses"] = report["clauses"][1:]
        report["device"]["name"] = "other"
        two = self.folder / "two.json"
        two.write_text(json.dumps(report))
        seen = scripted.run("compare", one, two).stdout
        self.assertIn("\n1 clauses differ, 0 deviate on all", seen)
        self.assertRegex(seen, r" - *\n")

    def test_what_is_no_report_is_refused_in_one_line(self):
        one, bad = self.report("one", "--filter", "pd.Conforms"), self.folder / "bad.json"
        for text in ("", "{", "{}", "[]", "null", '{"clauses": 1, "device": 2}', '{"clauses": [1], "device": {}}',
                     '{"clauses": [{"id": 1}], "device": {}}', '{"schema": "verbs-conformance/3", "clauses": []}',
                     '{"schema": "verbs-conformance/2", "clauses": [{"id": "a.b", "verdict": "FINE"}]}'):
            with self.subTest(text=text):
                bad.write_text(text)
                seen = scripted.run("compare", one, bad)
                self.assertEqual(seen.returncode, 2)
                self.assertEqual(seen.stderr.count("\n"), 1, seen.stderr)
                self.assertEqual(scripted.run("render", bad).returncode, 2)
        self.assertEqual(scripted.run("compare", one, self.folder / "none.json").returncode, 2)
        self.assertEqual(scripted.run("compare", one, one, "--html", "/dev/null/page").returncode, 2)
