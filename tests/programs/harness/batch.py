# SPDX-License-Identifier: BSD-2-Clause
"""Runs cases one after the other, without ctest."""

import os
import subprocess
import sys
import xml.etree.ElementTree

CASE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "case.py")


def run(cases, build, results=None, more=()):
    """Prints a line for each case. The number of those that failed. `results`: a file for tests/docs/programs.py."""
    suite, failed = xml.etree.ElementTree.Element("testsuite"), 0
    for case in cases:
        seen = subprocess.run([sys.executable, CASE, case.name, "--verbena", os.path.join(build, "bin/verbena"), "--build",
                               build, *more], capture_output=True, text=True)
        failed += seen.returncode != 0
        print(f"{case.name}: {seen.stdout.strip()}{seen.stderr.strip()}", flush=True)
        xml.etree.ElementTree.SubElement(suite, "testcase", name=f"programs.{case.name}",
                                         status="run" if seen.returncode == 0 else "fail")
    if results:
        xml.etree.ElementTree.ElementTree(suite).write(results)
    return failed
