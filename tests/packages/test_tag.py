# SPDX-License-Identifier: BSD-2-Clause
"""packaging/tag-release, in a repository of its own with the files that name the version."""

import os
import pathlib
import shutil
import tempfile
import unittest

from made import SOURCE, VERSION, run

FILES = ("CMakeLists.txt", "CHANGELOG.md", "README.md", "action.yml", "packaging/gitlab/verbena.yml",
         "packaging/tag-release")


class Tag(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.tree = self.folder / "tree"
        self.environment = {**os.environ, "HOME": str(self.folder), "GIT_CONFIG_NOSYSTEM": "1",
                            "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org",
                            "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}
        for name in FILES:
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, self.tree / name)
        self.edit("CHANGELOG.md", "\n## Next\n", f"\n## {VERSION}\n")
        self.git("init", "-q")
        self.commit()

    def git(self, *words):
        return run("git", *words, cwd=self.tree, env=self.environment).stdout

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "all")

    def edit(self, name, old, new):
        file = self.tree / name
        file.write_text(file.read_text().replace(old, new))

    def tag(self, *words):
        return run(self.tree / "packaging/tag-release", *words, check=False, env=self.environment)

    def refused(self, reason):
        outcome = self.tag()
        self.assertEqual(outcome.returncode, 1, outcome)
        self.assertIn(reason, outcome.stderr)

    def test_has_the_changes_of_the_version(self):
        self.assertEqual(self.tag().stdout, f"v{VERSION}\n")
        tag = self.git("cat-file", "tag", f"v{VERSION}")
        self.assertIn(f"\nVerbena {VERSION}\n\n", tag)
        self.assertIn("\n- ", tag)
        self.assertNotIn("\n## ", tag)
        self.refused(f"there is a tag v{VERSION}")

    def test_is_signed(self):
        key = self.folder / "key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        outcome = run("../tree/packaging/tag-release", "--sign", "../key", cwd=self.folder / "tree", env=self.environment)
        self.assertEqual(outcome.stdout, f"v{VERSION}\n")
        signers = self.folder / "signers"
        signers.write_text(f"a@example.org {(self.folder / 'key.pub').read_text()}")
        self.git("-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={signers}", "verify-tag", f"v{VERSION}")

    def test_is_refused(self):
        for name, old, new, reason in (
                ("CHANGELOG.md", f"\n## {VERSION}\n", "\n## Next\n", "the section \"Next\" shall be"),
                ("CHANGELOG.md", f"\n## {VERSION}\n", "\n## 99.0\n", "no section"),
                ("README.md", f"verbena@v{VERSION}", "verbena@v99.0", "README.md: not the version"),
                ("action.yml", f"verbena@v{VERSION}", "verbena@v99.0", "action.yml: not the version"),
                ("packaging/gitlab/verbena.yml", f'"{VERSION}"', '"99.0"', "verbena.yml: not the version")):
            with self.subTest(name=name, new=new):
                self.edit(name, old, new)
                self.refused("something is not committed")
                self.commit()
                self.refused(reason)
                self.git("reset", "-q", "--hard", "HEAD^")


if __name__ == "__main__":
    unittest.main()
