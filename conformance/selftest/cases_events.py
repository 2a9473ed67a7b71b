# SPDX-License-Identifier: BSD-2-Clause
"""--event-command."""
import json
import os
import pty

import scripted


class EventCommand(scripted.WithAFolder):
    """--event-command CMD: `CMD EVENT DEVICE PORT`, or `ask`."""

    TEST = ("--allow-disruptive", "--filter", "order.CausesAReset")

    def detail(self, *options, **more):
        seen = scripted.run(*self.TEST, "--report-dir", self.folder, *options, **more)
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
            os.execv(scripted.prefix[0], [*scripted.prefix, scripted.program, *self.TEST, "--event-command", "ask"])
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
