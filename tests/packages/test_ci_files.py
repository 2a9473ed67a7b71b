# SPDX-License-Identifier: BSD-2-Clause
"""The action for GitHub and the template for GitLab: their syntax, and that they name the packages as they
are. No runner of either is here to run them."""

import re
import subprocess
import unittest

from made import SOURCE, VERSION, deb, run

try:
    import yaml
except ImportError:
    yaml = None


@unittest.skipUnless(yaml, "no yaml (package python3-yaml)")
class CiFiles(unittest.TestCase):
    def parses(self, script):
        self.assertEqual(subprocess.run(["bash", "-n"], input=script, text=True).returncode, 0, script)

    def test_action(self):
        action = yaml.safe_load((SOURCE / "action.yml").read_text())
        self.assertEqual(action["runs"]["using"], "composite")
        self.assertTrue(action["name"] and action["description"])
        inputs = set(action["inputs"])
        steps = action["runs"]["steps"]
        for step in steps:
            self.assertEqual(step["shell"], "bash")  # a composite action's run steps must name it
            self.parses(step["run"])
            used = set(re.findall(r"inputs\.(\w+)", str(step)))
            self.assertLessEqual(used, inputs)
        text = "\n".join(step["run"] for step in steps)
        self.assertIn("apt-get install", text)
        self.assertIn("verbena run -- ibv_devinfo", text)

    def test_gitlab(self):
        job = yaml.safe_load((SOURCE / "packaging/gitlab/verbena.yml").read_text())[".verbena"]
        self.assertEqual(job["variables"]["VERBENA_VERSION"], VERSION)
        for line in job["before_script"]:
            self.assertIsInstance(line, str)
            self.parses(line)
        named = next(line for line in job["before_script"] if line.startswith("packages="))
        files = run("sh", "-c", f"{named}; echo $packages", env={"VERBENA_VERSION": VERSION, "PATH": "/usr/bin:/bin"}).stdout
        self.assertEqual(files.split(), [deb("verbena").name, deb("verbena-dev").name])

    def test_versions(self):
        self.assertIn(f"\n## {VERSION}\n", (SOURCE / "CHANGELOG.md").read_text())
        self.assertIn(f"@v{VERSION}", (SOURCE / "action.yml").read_text())
