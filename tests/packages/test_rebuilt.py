# SPDX-License-Identifier: BSD-2-Clause
"""Compiled twice, from a copy of the sources in another folder: the same bytes."""

import os
import pathlib
import shutil
import tempfile
import unittest

from made import EPOCH, SOURCE, run


@unittest.skipUnless(os.environ.get("VERBENA_REBUILD"), "takes ten minutes or more: VERBENA_REBUILD=1 runs it")
class Rebuilt(unittest.TestCase):
    def test_in_another_folder(self):
        with tempfile.TemporaryDirectory() as name:
            sums = []
            for place in ("first", "a longer name/second"):
                copy = pathlib.Path(name) / place
                shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("build", ".git", ".cache"))
                run(copy / "packaging/build-packages", patience=1700,
                    env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "CCACHE_DISABLE": "1"})
                sums.append((copy / "build/packages/SHA256SUMS").read_text())
                shutil.rmtree(copy)
            self.assertEqual(*sums)
