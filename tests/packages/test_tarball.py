# SPDX-License-Identifier: BSD-2-Clause
"""The tarball runs from any folder."""

import pathlib
import shutil
import tempfile
import unittest

from made import VERSION, outside, run, tarball


class Tarball(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        run("tar", "-xf", tarball(), "-C", self.folder)
        self.environment = outside(TMPDIR=str(self.folder), XDG_RUNTIME_DIR="")

    def test_it_has_one_folder(self):
        self.assertEqual([entry.name for entry in self.folder.iterdir()], [f"verbena-{VERSION}"])

    def test_from_any_folder(self):
        moved = self.folder / "any-place" / "verbena"
        moved.parent.mkdir()
        (self.folder / f"verbena-{VERSION}").rename(moved)
        seen = run(moved / "bin/verbena", "run", "--", "ibv_devinfo", cwd="/", env=self.environment).stdout
        self.assertRegex(seen, r"hca_id:\s+verbena0")
        self.assertIn("PORT_ACTIVE", seen)
        small = run(moved / "bin/verbena", "run", "--profile", "minimal", "--", moved / "bin/verbs-conformance", "--quick",
                    "--chapter", "pd", cwd="/", env=self.environment)
        self.assertIn("CONFORMS", small.stdout + small.stderr)

    def test_the_packages_of_programs_that_use_it(self):
        tree = self.folder / f"verbena-{VERSION}"
        program = self.folder / "program.c"
        program.write_text("#include <verbena/vendor_errors.h>\n"
                           "int main(void) { return VERBENA_ERR_RKEY_UNKNOWN != 0x91; }\n")
        flags = run("pkg-config", "--cflags", "verbena", env=outside(PKG_CONFIG_PATH=str(tree / "share/pkgconfig"))).stdout
        run("cc", "-Wall", "-Wextra", "-Werror", "-std=c99", *flags.split(), program, "-o", self.folder / "program")
        run(self.folder / "program")
