# SPDX-License-Identifier: BSD-2-Clause
"""Made twice from the same programs, at another time and with other settings: the same bytes. The second time
they are signed, by an SSH key of this test."""

import os
import pathlib
import shutil
import tempfile
import unittest

from made import BUILD, EPOCH, FOLDER, SOURCE, run


class Reproducible(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "USER": "other"}
        sign = []
        if shutil.which("ssh-keygen"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", cls.folder / "key")
            sign = ["--sign", cls.folder / "key"]
        run(SOURCE / "packaging/build-packages", "--build", BUILD, "--output", cls.folder, *sign, env=environment, umask=0o077,
            patience=500)

    def test_the_same_bytes(self):
        sums = (FOLDER / "SHA256SUMS").read_text()
        self.assertEqual(len(sums.splitlines()), 4)
        self.assertEqual(sums, (self.folder / "SHA256SUMS").read_text())
        run("sha256sum", "--check", "SHA256SUMS", cwd=self.folder)

    def verify(self, sums):
        with open(sums) as file:
            return run("ssh-keygen", "-Y", "verify", "-f", self.folder / "allowed", "-I", "maintainer", "-n", "verbena", "-s",
                       self.folder / "SHA256SUMS.sig", stdin=file, check=False).returncode

    @unittest.skipUnless(shutil.which("ssh-keygen"), "no ssh-keygen (package openssh-client)")
    def test_the_signature(self):
        (self.folder / "allowed").write_text(f"maintainer {(self.folder / 'key.pub').read_text()}")
        self.assertEqual(self.verify(self.folder / "SHA256SUMS"), 0)
        changed = self.folder / "changed"
        changed.write_text((self.folder / "SHA256SUMS").read_text() + "0" * 64 + "  another.deb\n")
        self.assertNotEqual(self.verify(changed), 0, "a changed file is verified")
