# SPDX-License-Identifier: BSD-2-Clause
"""Signed reports."""
import shutil
import subprocess
import unittest

import scripted


@unittest.skipUnless(shutil.which("ssh-keygen"), "no ssh-keygen")
class Signed(scripted.WithAFolder):
    def test_a_report(self):
        key = self.folder / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", key], check=True,
                       timeout=scripted.TIME)
        signers = self.folder / "signers"
        signers.write_text("lab@example.org " + key.with_suffix(".pub").read_text())
        seen = scripted.run("--filter", "pd.Conforms", "--report-dir", self.folder, "--sign", key)
        self.assertEqual(seen.returncode, 0, seen)
        report = self.folder / "report.json"
        by = "--signers", signers, "--identity", "lab@example.org"
        self.assertEqual((scripted.run("verify", report).returncode, scripted.run("verify", report, *by).returncode), (0, 0))
        self.assertEqual(scripted.run("verify", report, "--signers", signers, "--identity", "other").returncode, 1)
        report.write_text(report.read_text().replace("CONFORMS", "CONFORMED", 1))
        self.assertEqual((scripted.run("verify", report).returncode, scripted.run("verify", report, *by).returncode), (1, 1))
        self.assertEqual(scripted.run("verify", self.folder / "none.json").returncode, 2)

    def test_a_key_is_tried_before_the_run(self):
        seen = scripted.run("--filter", "pd.Deviates", "--report-dir", self.folder, "--sign", self.folder / "none")
        self.assertEqual((seen.returncode, seen.stderr.count("\n"), seen.stdout), (2, 1, ""))
