# SPDX-License-Identifier: BSD-2-Clause
"""What was found so far is kept, whatever ends the run."""
import json
import os
import pathlib
import signal
import subprocess
import time
import xml.etree.ElementTree

import scripted


class EndsEarly(scripted.WithAFolder):
    """What was found so far is kept, whatever ends the run."""

    def start(self):
        folder = self.folder / "reports"
        process = subprocess.Popen([*scripted.prefix, scripted.program, "--allow-disruptive", "--filter",
                                    "pd.Deviates:order.Waits", "--report-dir", folder, "--jobs", "1"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                                   start_new_session=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + scripted.TIME
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
            if words[0] == os.fsencode(scripted.program) and os.fsencode(self.folder / "reports") in words:
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
        out, err = process.communicate(timeout=scripted.TIME)
        self.assertEqual(process.returncode, 2, err)
        self.assertIn("interrupted by Interrupt", err.splitlines()[-1])
        self.assertEqual(self.check(folder)["run"]["stopped"], "interrupted by Interrupt")
        self.assertFalse((folder / "report.journal").exists())

    def test_killed_and_rendered_from_its_journal(self):
        process, folder = self.start()
        for pid in self.suite():
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=scripted.TIME)
        journal = folder / "report.journal"
        self.assertFalse((folder / "report.json").exists())
        with journal.open("a") as file:
            file.write('{"test": "order.Wai')  # cut off
        seen = scripted.run("render", journal)
        self.assertEqual(seen.returncode, 2, seen)
        self.check(folder)
        lines = journal.read_text().splitlines()
        other = self.folder / "other.journal"
        begin = json.loads(lines[0])
        for key, value, why in (("schema", "verbs-conformance-journal/9", "another version"),
                                ("provenance", {"clauses_sha256": "0", "suite_commit": "abc"}, "of commit abc")):
            other.write_text(json.dumps(begin | {key: value}) + "\n")
            refused = scripted.run("render", other)
            self.assertEqual((refused.returncode, refused.stderr.count("\n")), (2, 1))
            self.assertIn(why, refused.stderr)

    def test_a_full_disk_at_the_end(self):
        folder = self.folder / "full"
        folder.mkdir()
        (folder / "report.json.new").symlink_to("/dev/full")
        (folder / "report.json").write_text("the former one")
        seen = scripted.run("--filter", "pd.Conforms", "--report-dir", folder)
        self.assertEqual(seen.returncode, 2)
        self.assertRegex(seen.stderr, r"^verbs-conformance: cannot write .*report.json: No space left on device; "
                                      r"what was found is in .*report.journal\n$")
        self.assertEqual((folder / "report.json").read_text(), "the former one")
        elsewhere = self.folder / "elsewhere"
        self.assertEqual(scripted.run("render", folder / "report.journal", "--report-dir", elsewhere).returncode, 2)
        self.assertTrue((elsewhere / "report.json").exists())

    def test_a_full_disk_before_the_run(self):
        folder = self.folder / "full"
        folder.mkdir()
        (folder / "report.journal").symlink_to("/dev/full")
        seen = scripted.run("--filter", "pd.Conforms", "--report-dir", folder)
        self.assertEqual((seen.returncode, seen.stdout, seen.stderr.count("\n")), (2, "", 1))
        self.assertIn("No space left on device", seen.stderr)

    def test_a_full_disk_in_the_midst(self):
        """A file system of its own, which a test fills."""
        disk, kept = self.folder / "disk", self.folder / "kept"
        disk.mkdir()
        kept.mkdir()
        own = ("unshare", "--user", "--map-root-user", "--mount")
        if subprocess.run([*own, "mount", "-t", "tmpfs", "none", disk], stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("no file system of a test's own here")
        script = ('mount -t tmpfs -o size=64k none "$1" && disk=$1 kept=$2 && shift 2 && "$@"; status=$?; '
                  'cp "$disk"/report.* "$kept"; exit $status')
        seen = subprocess.run([*own, "sh", "-c", script, "sh", disk, kept, *scripted.prefix, scripted.program,
                               "--allow-disruptive", "--jobs", "1", "--report-dir", disk, "--filter",
                               "pd.Deviates:order.FillsTheDisk:order.Uses*"],
                              env=os.environ | {"CONFORMANCE_SCRIPTED_STATE": str(disk / "state")}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                              timeout=scripted.TIME)
        self.assertEqual(seen.returncode, 2, seen)
        self.assertRegex(seen.stderr.splitlines()[-1],
                         r"^verbs-conformance: cannot write .*report.json: No space left on device; what was found (first )?"
                         r"is in .*report.journal$")
        self.assertEqual(sorted(path.name for path in kept.iterdir()), ["report.journal"])
        self.assertEqual(scripted.run("render", kept / "report.journal").returncode, 2)
        tests = {test["name"]: test["verdict"] for test in json.loads((kept / "report.json").read_text())["tests"]}
        self.assertEqual(tests["pd.Deviates"], "DEVIATES")
