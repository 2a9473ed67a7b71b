# SPDX-License-Identifier: BSD-2-Clause
"""A device that goes in the midst of a run, that hangs, or whose driver crashes."""
import json
import os
import subprocess

import scripted


class DeviceGoes(scripted.WithAFolder):
    """In the midst of a run, on a node of its own."""

    def setUp(self):
        super().setUp()
        self.reports = self.folder / "reports"
        self.environment = os.environ | {"XDG_RUNTIME_DIR": str(self.folder)}
        self.verbena = scripted.prefix[0]
        self.node = [*scripted.prefix[:2], "--node", "goes", "--"]

    def ended(self, command, *tests):
        """The run in which the event command is `command`."""
        return subprocess.run([*self.node, scripted.program, "--allow-disruptive", "--jobs", "1", "--report-dir",
                               self.reports, "--filter", ":".join(tests), "--event-command", command],
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                              timeout=scripted.TIME, env=self.environment)

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


class DriverBreaks(scripted.WithAFolder):
    """The driver hangs or crashes each process that asks for devices."""

    def ended(self, driver, *options, **environment):
        return scripted.run("--allow-disruptive", "--jobs", 1, "--report-dir", self.folder / "reports", *options,
                            env=os.environ | {"CONFORMANCE_SCRIPTED_DRIVER": driver} | environment)

    def test_at_once(self):
        for driver, options, why in (
                ("crashes", (), "the driver crashes the process that opens the device: Segmentation fault"),
                ("hangs", ("--time-scale", 0.1), "the device does not answer")):
            for more in ((), ("--all-ports",)):
                with self.subTest(driver=driver, more=more):
                    seen = self.ended(driver, "--filter", "pd.Conforms", *options, *more)
                    self.assertEqual((seen.returncode, seen.stdout, seen.stderr), (2, "", f"verbs-conformance: {why}\n"))

    def test_in_the_midst_of_a_run(self):
        for driver, options, why in (("crashes", (), "the driver crashes the process that opens the device: .*"),
                                     ("hangs", ("--time-scale", 0.1), "the device does not answer")):
            with self.subTest(driver=driver):
                state = self.folder / driver
                seen = self.ended(driver, "--filter", "pd.Conforms:order.BreaksTheDriver:order.Uses*", *options,
                                  CONFORMANCE_SCRIPTED_STATE=str(state))
                self.assertEqual(seen.returncode, 2, seen)
                self.assertRegex(seen.stderr.splitlines()[-1],
                                 "^verbs-conformance: after order.BreaksTheDriver the device is gone or does not answer: "
                                 f"{why}; what was found is in ")
                report = json.loads((self.folder / "reports/report.json").read_text())
                self.assertEqual({test["name"]: test["verdict"] for test in report["tests"]},
                                 {"pd.Conforms": "CONFORMS", "order.BreaksTheDriver": "DEVIATES"})

    def test_in_the_kernel(self):
        """A process that SIGKILL does not end."""
        seen = self.ended("", "--filter", "pd.Conforms:order.CannotBeKilled:order.Uses*", "--time-scale", 0.1)
        report = json.loads((self.folder / "reports/report.json").read_text())
        tests = {test["name"]: test for test in report["tests"]}
        if tests["order.CannotBeKilled"]["verdict"] == "NOT TESTED":
            self.skipTest(tests["order.CannotBeKilled"]["detail"])
        self.assertEqual(seen.returncode, 2, seen)
        self.assertRegex(seen.stderr.splitlines()[-1], "^verbs-conformance: the device hangs: order.CannotBeKilled cannot be "
                                                       "killed; what was found is in ")
        self.assertEqual((set(tests), tests["pd.Conforms"]["verdict"], tests["order.CannotBeKilled"]["verdict"]),
                         ({"pd.Conforms", "order.CannotBeKilled"}, "CONFORMS", "DEVIATES"))
        self.assertRegex(tests["order.CannotBeKilled"]["detail"],
                         r"did not end, and cannot be killed: process \d+ is in the kernel, at ")
