# SPDX-License-Identifier: BSD-2-Clause
"""Manual pages and completion: they say what the programs say to --help."""

import os
import pathlib
import re
import shutil
import tempfile
import unittest

from made import VERSION, outside, run, tarball


class Manuals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, folder)
        run("tar", "-xf", tarball(), "-C", folder)
        cls.tree = folder / f"verbena-{VERSION}"

    def help(self, program, *words):
        return run(self.tree / "bin" / program, *words, "--help").stdout

    def page(self, program):
        shown = run("man", "--warnings", "-l", self.tree / f"share/man/man1/{program}.1",
                    env=outside(MANWIDTH="300", LC_ALL="C", MAN_KEEP_FORMATTING="0"))
        self.assertEqual(shown.stderr, "")
        return " ".join(re.sub(".\b", "", shown.stdout).split())

    def commands(self, program):
        part = self.help(program).split("ubcommands:", 1)[1].split("\n\n")[0]
        return re.findall(r"^  ([a-z]+) ", part, re.MULTILINE)

    def test_every_option_of_every_command_is_in_the_page(self):
        for program in ("verbena", "verbs-conformance"):
            page, commands = self.page(program), self.commands(program)
            self.assertTrue(commands)
            for words in ([], *([command] for command in commands)):
                text = self.help(program, *words)
                self.assertIn(text.splitlines()[0].strip(), page)
                for option, explained in re.findall(r"^  (--[a-z-]+)(?: .*)?(?:  |\n {30})(\S.*)$", text, re.MULTILINE):
                    self.assertIn(option, page)
                    self.assertIn(" ".join(explained.split()), page)

    def test_the_examples_stay_as_they_are(self):
        self.assertIn('eval "$(verbena env)"; ibv_devinfo', self.page("verbena"))
        self.assertIn("verbena run -- ibv_rc_pingpong -g 1 localhost", self.page("verbena"))

    def test_the_version_is_one(self):
        for program in ("verbena", "verbs-conformance"):
            self.assertEqual(run(self.tree / "bin" / program, "--version").stdout.strip(), f"{program} {VERSION}")
            self.assertIn(f"{program} {VERSION}", self.page(program))

    def complete(self, *words):
        """What bash would offer for the last of `words`."""
        script = '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _verbena_completion "$1"; printf "%s\\n" "${COMPREPLY[@]}"'
        file = self.tree / "share/bash-completion/completions" / words[0]
        path = f"{self.tree}/bin:{os.environ['PATH']}"
        return set(run("bash", "-c", script, file, *words, env=outside(PATH=path)).stdout.split())

    def test_completion(self):
        self.assertEqual(self.complete("verbena", ""), set(self.commands("verbena")))
        self.assertEqual(self.complete("verbena", "st"), {"status"})
        self.assertEqual(self.complete("verbena", "run", "--pro"), {"--profile"})
        self.assertEqual(self.complete("verbena", "run", "--link-layer", ""), {"ethernet", "infiniband"})
        self.assertEqual(self.complete("verbena", "event", "verbena0", "port-"), {"port-up", "port-down"})
        self.assertIn("ibv_devinfo", self.complete("verbena", "run", "--", "ibv_devin"))
        self.assertEqual(self.complete("verbs-conformance", "--port-"), {"--port-tcp"})
