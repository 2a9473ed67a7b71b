# SPDX-License-Identifier: BSD-2-Clause
"""The command `verbena check` itself: exit status, reports, suppressions, usage.

usage: command.py VERBENA FOLDER_OF_PROGRAMS
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

VERBENA, PROGRAMS = sys.argv[1], pathlib.Path(sys.argv[2])


def check(*options, program="mr-range", kind="wrong"):
    command = [VERBENA, "check", "--node", "command", *options, "--", str(PROGRAMS / f"check_{program}"), kind]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.environ["TMPDIR"] = self.folder.name
        self.path = pathlib.Path(self.folder.name)

    def test_status_is_the_program_s(self):
        self.assertEqual(check().returncode, 0)
        shell = subprocess.run([VERBENA, "check", "--", "sh", "-c", "exit 7"], timeout=60, check=False, capture_output=True)
        self.assertEqual(shell.returncode, 7)
        killed = subprocess.run([VERBENA, "check", "--", "sh", "-c", "kill -9 $$"], timeout=60, check=False, capture_output=True)
        self.assertEqual(killed.returncode, 128 + signal.SIGKILL)
        missing = subprocess.run([VERBENA, "check", "--", "no-such-program"], timeout=60, check=False, capture_output=True)
        self.assertEqual(missing.returncode, 127)

    def test_says_when_nothing_was_checked(self):
        plain = subprocess.run([VERBENA, "check", "--", "true"], timeout=60, check=False, capture_output=True, text=True)
        self.assertEqual(plain.returncode, 0)
        self.assertIn("no process has opened a device, so nothing was checked", plain.stderr)
        self.assertNotIn("nothing was checked", check(kind="right").stderr)
        missing = subprocess.run([VERBENA, "check", "--", "no-such-program"], timeout=60, check=False,
                                 capture_output=True, text=True)
        self.assertNotIn("nothing was checked", missing.stderr)

    def test_a_datagram_that_does_not_fit_has_the_place_of_its_receive(self):
        said = check(program="datagram-no-room").stderr
        self.assertRegex(said, r"\n  posted here:\n(    #.*\n)+  the receive was posted here:\n    #0 ibv_post_recv .*\n"
                               r"(    #.*\n)*    #\d main .*datagram-no-room\.c:")

    def test_a_report_that_cannot_be_written_is_told_first(self):
        told = subprocess.run([VERBENA, "check", "--json", "/no/such/folder/a.json", "--", "echo", "ran"], timeout=60,
                              check=False, capture_output=True, text=True)
        self.assertEqual((told.returncode, told.stdout), (1, ""))
        self.assertIn("cannot write to /no/such/folder/a.json: No such file or directory", told.stderr)

    def test_signals_reach_the_program(self):
        program = ("import signal, sys\n"
                   "for number in (1, 2, 3, 10, 12, 15): signal.signal(number, lambda number, frame: sys.exit(100 + number))\n"
                   "print('ready', flush=True)\n"
                   "while True: signal.pause()\n")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            with subprocess.Popen([VERBENA, "check", "--", "/usr/bin/python3", "-c", program], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as checked:
                try:
                    self.assertEqual(checked.stdout.readline(), "ready\n")
                    checked.send_signal(number)
                    self.assertEqual(checked.wait(60), 100 + number)
                finally:
                    if checked.poll() is None:
                        os.killpg(checked.pid, signal.SIGKILL)

    def test_error_exitcode(self):
        self.assertEqual(check("--error-exitcode", "9").returncode, 9)
        self.assertEqual(check("--error-exitcode", "9", kind="right").returncode, 0)

    def test_text(self):
        text = check().stderr
        for part in ("[mr-range]", "Rule: ", "To do: ", "posted here:", "registered here:", " main (", "mr-range.c:", "1 finding, 0 suppressed"):
            self.assertIn(part, text)
        self.assertEqual(check("--quiet").stderr, "")

    def test_reports(self):
        check("--quiet", "--json", str(self.path / "a.json"), "--sarif", str(self.path / "a.sarif"))
        findings = json.loads((self.path / "a.json").read_text())["findings"]
        self.assertEqual([each["rule"] for each in findings], ["mr-range"])
        self.assertEqual(findings[0]["level"], "error")
        self.assertTrue(any(frame["function"] == "main" for frame in findings[0]["calls"][0]["stack"]))
        log = json.loads((self.path / "a.sarif").read_text())
        self.assertEqual(log["version"], "2.1.0")
        run = log["runs"][0]
        self.assertEqual([rule["id"] for rule in run["tool"]["driver"]["rules"]], ["mr-range"])
        result = run["results"][0]
        self.assertEqual((result["ruleId"], result["level"]), ("mr-range", "error"))
        self.assertIn("startLine", result["locations"][0]["physicalLocation"]["region"])
        self.assertTrue(result["stacks"][0]["frames"])

    def test_a_refused_call_has_the_words_of_its_code(self):
        text = check("--json", str(self.path / "a.json"), program="call-refused").stderr
        for part in ("[capability_exceeded]", "Rule: Capacities are within the device's limits. (ibv_create_qp(3)",
                     "To do: Ask for no more than ibv_query_device(3) shows."):
            self.assertIn(part, text)
        finding, = json.loads((self.path / "a.json").read_text())["findings"]
        self.assertEqual((finding["rule"], finding["code"]), ("call-refused", "capability_exceeded"))

    def test_a_missing_access_flag_is_named(self):
        for program in "rkey-access", "remote-qp-access":
            self.assertIn(": IBV_ACCESS_REMOTE_WRITE\n", check(program=program).stderr)

    def test_suppressions(self):
        # What is printed for the purpose suppresses the finding.
        generated = check("--gen-suppressions").stderr
        entry = generated[generated.index("{\n"):generated.index("}\n") + 2]
        for text, suppressed in ((entry, True), ("{\n a\n verbena:mr-*\n ...\n fun:main\n}\n", True),
                                 ("{\n a\n verbena:leak-mr\n}\n", False), ("{\n a\n Memcheck:Leak\n fun:x\n}\n", False)):
            (self.path / "some.supp").write_text("# comment\n" + text)
            done = check("--suppressions", str(self.path / "some.supp"), "--error-exitcode", "9")
            self.assertEqual(done.returncode, 0 if suppressed else 9, text + done.stderr)
        (self.path / "some.supp").write_text("{\n a\n verbena:mr-range\n function:main\n}\n")
        done = check("--suppressions", str(self.path / "some.supp"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("some.supp:5: ", done.stderr)

    def test_rules_are_chosen(self):
        self.assertEqual(check("--error-exitcode", "9", "--disable", "mr-range").returncode, 0)
        self.assertEqual(check("--error-exitcode", "9", "--disable", "all").returncode, 0)
        done = check("--enable", "no-such-rule")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no-such-rule", done.stderr)

    def test_bytes_come_in_any_order_where_a_family_may(self):
        for family, order in (("mlx5", "in pieces"), ("irdma", "in pieces"), ("efa", "in pieces"), ("rxe", "in their order")):
            done = check("--quiet", "--like", family, program="placement-order")
            self.assertEqual(done.stdout.strip(), order, family + done.stderr)
        self.assertEqual(check("--quiet", program="placement-order").stdout.strip(), "in their order")

    def test_bytes_do_not_come_within_the_call_where_they_need_not(self):
        for family in "mlx5", "rxe":
            done = check("--quiet", "--like", family, program="placement-time")
            self.assertEqual(done.stdout.strip(), "later", family + done.stderr)
        self.assertEqual(check("--quiet", program="placement-time").stdout.strip(), "at once")

    def test_children_are_checked_and_equal_findings_are_one(self):
        program = PROGRAMS / "check_mr-range"
        done = subprocess.run([VERBENA, "check", "--json", str(self.path / "b.json"), "--", "sh", "-c", f"{program} wrong; {program} wrong"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(json.loads((self.path / "b.json").read_text())["findings"]), 1)

    def test_dlsym_finds_the_munmap_of_libc(self):
        """UCX and its like write a jump over what they find (provider/boundary/real.h)."""
        program = ("import ctypes\n"
                   "class Info(ctypes.Structure):\n"
                   "    _fields_ = [(name, ctypes.c_char_p) for name in ('file', 'base', 'symbol', 'address')]\n"
                   "info, libc = Info(), ctypes.CDLL(None)\n"
                   "libc.dladdr(ctypes.cast(libc.munmap, ctypes.c_void_p), ctypes.byref(info))\n"
                   "print(info.file.decode())\n")
        done = subprocess.run([VERBENA, "check", "--", "/usr/bin/python3", "-c", program], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertIn("/libc.so", done.stdout, done.stderr)

    def test_nothing_is_left_behind(self):
        check()
        self.assertEqual([file for file in self.path.iterdir() if file.name.startswith("verbena-check.")], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
