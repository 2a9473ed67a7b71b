# SPDX-License-Identifier: BSD-2-Clause
"""Several rounds, several places, and the line of progress."""
import json
import os
import re
import subprocess
import unittest

import scripted


class Repeated(scripted.WithAFolder):
    def test_tells_the_rate(self):
        state = self.folder / "state"
        seen = scripted.run("--allow-disruptive", "--filter", "order.IsFlaky:pd.Conforms", "--repeat", 5, "--report-dir",
                            self.folder, env=os.environ | {"CONFORMANCE_SCRIPTED_STATE": str(state)})
        self.assertEqual(seen.returncode, 1, seen)
        report = json.loads((self.folder / "report.json").read_text())
        clause = next(clause for clause in report["clauses"] if clause["id"] == "order.unsignaled")
        self.assertEqual((clause["verdict"], clause["deviations"]), ("DEVIATES", 3))
        test = next(test for test in report["tests"] if test["name"] == "order.IsFlaky")
        self.assertEqual((test["runs"], test["failures"], report["run"]["rounds"]), (5, 3, 5))
        self.assertIn("in 3 of", (self.folder / "report.html").read_text())

    def test_soak_ends(self):
        seen = scripted.run("--filter", "pd.Conforms", "--soak", 0.005, "--report-dir", self.folder)
        self.assertEqual(seen.returncode, 0, seen)
        self.assertGreater(json.loads((self.folder / "report.json").read_text())["run"]["rounds"], 1)

    def test_each_gid_in_a_folder(self):
        seen = scripted.run("--filter", "pd.Conforms", "--all-ports", "--all-gids", "--report-dir", self.folder)
        self.assertEqual(seen.returncode, 0, seen)
        gids = {json.loads(path.read_text())["device"]["gid_index"] for path in self.folder.glob("*/report.json")}
        self.assertEqual(len(gids), seen.stdout.count(", GID "))
        self.assertGreater(len(gids), 1)


class ProgressLine(unittest.TestCase):
    def test_shows_on_a_terminal_how_far_it_is_and_the_time_left(self):
        near, far = os.openpty()
        process = subprocess.Popen([*scripted.prefix, scripted.program, "--jobs", "1"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=far)
        os.close(far)
        text = b""
        try:
            while piece := os.read(near, 4096):
                text += piece
        except OSError:  # Linux: EIO when the last writer is gone
            pass
        finally:
            os.close(near)
            self.assertEqual(process.wait(scripted.TIME), 1)
        told = re.findall(rb"\[(\d+)/(\d+)\] about (\d+) s left, ([a-z]+\.[A-Za-z]+)", text)
        self.assertEqual([(int(done), int(total)) for done, total, _, _ in told], [(i, 9) for i in range(1, 10)])
        self.assertEqual(told[-1][2], b"1")
        self.assertIn(b"DEVIATES pd.Deviates: ", text)
        self.assertTrue(text.endswith(b"\r\x1b[K"))
