# SPDX-License-Identifier: BSD-2-Clause
"""Runs the scripted program (scripted.cc); what its reports and pages are made of."""
import html.parser
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TIME = 60  # seconds for one run
VERDICTS = {"CONFORMS", "DEVIATES", "NOT CLAIMED", "NOT TESTED"}
DEVIATING = ("ibv_dealloc_pd.zero", "ibv_alloc_pd.many", "ibv_dealloc_pd.busy-mr", "ibv_reg_mr.fields")
program, prefix = None, []  # of the command line: SCRIPTED, and what is before it


def run(*options, **more):
    return subprocess.run([*prefix, program, *map(str, options)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", errors="replace", timeout=TIME, **more)


def shrink(report):
    script = pathlib.Path(__file__).resolve().parents[1] / "expectations/shrink"
    return subprocess.run([sys.executable, script, report], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=TIME, check=True).stdout


def deviation(clause, reason="It is <so> & \"known\".", more=""):
    return f"[[deviation]]\nclause = \"{clause}\"\nreason = {json.dumps(reason)}\nsource = \"its sheet\"\n{more}"


class Page(html.parser.HTMLParser):
    """Checks that elements are closed; collects references to anything outside."""

    EMPTY = {"meta", "input", "br"}

    def __init__(self, text):
        super().__init__()
        self.open, self.outside, self.rows, self.ids, self.jumps, self.text = [], [], [], set(), set(), ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in self.EMPTY:
            self.open.append(tag)
        if "data-v" in attrs:
            self.rows.append(attrs)
        self.ids.update(value for name, value in attrs.items() if name == "id")
        for name, value in attrs.items():
            if name == "href" and value.startswith("#"):
                self.jumps.add(value[1:])
            elif (name in ("src", "href", "srcset", "action", "data", "background")
                  or tag in ("link", "iframe", "object")):
                self.outside.append((tag, name, value))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> where {self.open} are open")

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "style" and re.search(r"url\(|@import", data):
            self.outside.append(("style", "url", data))
        if self.open and self.open[-1] == "script" and re.search(r"https?:|fetch|XMLHttp|import", data):
            self.outside.append(("script", "", data))


class WithAFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="conformance-program.")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def expectations(self, text):
        path = self.folder / f"expectations-{len(list(self.folder.iterdir()))}.toml"
        path.write_text(text)
        return path
