#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The pages in a browser: no error, nothing loaded, filters, contrast, keyboard, a phone, print.

    conformance/selftest/browser.py SCRIPTED [verbena run --]

With CONFORMANCE_SCREENSHOTS=DIR, pictures of the pages go to DIR. Exit status 77 without Chromium.
"""
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import devtools
import scripted

PAGES = ("report", "compare", "history")
SCHEMES = {"light": False, "dark": True}

# Of each text that is seen: its contrast to what is behind it, by WCAG 2.1 (relative luminance, 1.4.3).
CONTRAST = """(function(){
 var channel=function(c){c/=255;return c<=.03928?c/12.92:Math.pow((c+.055)/1.055,2.4)};
 var parse=function(t){var m=t.match(/[\\d.]+/g).map(Number);return m.length<4?m.concat(1):m};
 var light=function(c){return .2126*channel(c[0])+.7152*channel(c[1])+.0722*channel(c[2])};
 var behind=function(e){for(;e;e=e.parentElement){var c=parse(getComputedStyle(e).backgroundColor);if(c[3]>0)return c}
  return matchMedia('(prefers-color-scheme: dark)').matches?[18,18,18,1]:[255,255,255,1]};
 var ratio=function(a,b){var x=light(a),y=light(b);return (Math.max(x,y)+.05)/(Math.min(x,y)+.05)};
 var bad={},walker=document.createTreeWalker(document.body,NodeFilter.SHOW_TEXT),node;
 while(node=walker.nextNode()){
  var e=node.parentElement;
  if(!node.data.trim()||!e.checkVisibility()||/^(SCRIPT|STYLE|OPTION)$/.test(e.tagName))continue;
  var style=getComputedStyle(e),r=ratio(parse(e.closest('svg')?style.fill:style.color),behind(e));
  if(r<4.5)bad[e.tagName+'.'+e.className+' '+style.color]=r}
 [].forEach.call(document.querySelectorAll('.cell,.bar i'),function(e){
  var style=getComputedStyle(e),own=parse(style.backgroundColor),r=ratio(own[3]>0?own:parse(style.borderTopColor),
   behind(e.parentElement));
  if(r<3)bad['cell '+e.className]=r});
 return bad})()"""

VISIBLE = "[].filter.call(document.querySelectorAll('[data-v]'),function(r){return !r.hidden}).length"


def set_input(selector, change):
    return (f"(function(){{var e=document.querySelector({json.dumps(selector)});{change};"
            "e.dispatchEvent(new Event('input',{bubbles:true}))})()")


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="conformance-browser.", ignore_cleanup_errors=True)
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        known = cls.folder / "known.toml"
        known.write_text(scripted.deviation("ibv_alloc_pd.many", more="layer = \"libibverbs\"\n"))
        made = {"a": ("--expect", known), "b": ("--chapter", "pd"), "c": ("--filter", "cq.*:pd.Conforms")}
        for name, options in made.items():
            made_it = scripted.run("--report-dir", cls.folder / name, *options)
            if made_it.returncode > 1:
                raise RuntimeError(made_it.stderr)
        reports = [cls.folder / name / "report.json" for name in made]
        cls.paths = {"report": cls.folder / "a/report.html", "compare": cls.folder / "compare.html",
                     "history": cls.folder / "history.html"}
        scripted.run("compare", *reports, "--html", cls.paths["compare"])
        scripted.run("history", *reports, "--html", cls.paths["history"])
        cls.browser = devtools.Browser(cls.folder)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.look()

    def each(self, **look):
        for page in PAGES:
            with self.subTest(page=page, **look):
                self.browser.look(**look)
                self.browser.open(self.paths[page])
                yield page

    def test_no_errors_and_nothing_loaded(self):
        for page in self.each():
            self.assertEqual(self.browser.errors, [])
            self.assertEqual(set(self.browser.requests) - {"about:blank"}, {f"file://{self.paths[page]}"})

    def test_contrast(self):
        for scheme, dark in SCHEMES.items():
            for page in self.each(dark=dark):
                self.browser.run("[].forEach.call(document.querySelectorAll('details'),function(d){d.open=true})")
                self.assertEqual(self.browser.run(CONTRAST), {}, scheme)

    def test_a_phone_needs_no_sideways_scrolling(self):
        for page in self.each(width=400, height=800):
            self.browser.run("[].forEach.call(document.querySelectorAll('details'),function(d){d.open=true})")
            self.assertLessEqual(self.browser.run("document.documentElement.scrollWidth"), 400)
            wide = self.browser.run("[].filter.call(document.querySelectorAll('body *'),function(e){"
                                    "return e.getBoundingClientRect().right>401&&!e.closest('.scroll,pre')})"
                                    ".map(function(e){return e.tagName+'.'+e.className})")
            self.assertEqual(wide, [])

    def test_filters(self):
        browser = self.browser
        browser.open(self.paths["report"])
        clauses = json.loads((self.folder / "a/report.json").read_text())["clauses"]
        self.assertEqual(browser.run(VISIBLE), len(clauses))
        for kind, chosen in (("NOT-TESTED", "NOT TESTED"), ("NOT-CLAIMED", "NOT CLAIMED"), ("CONFORMS", "CONFORMS"),
                             ("DEVIATES", "DEVIATES")):
            browser.run(set_input(f".filters input[value={kind}]", "e.checked=false"))
            clauses = [c for c in clauses if c["verdict"] != chosen or "expected" in c]
            self.assertEqual(browser.run(VISIBLE), len(clauses), kind)
        self.assertEqual([c["id"] for c in clauses], ["ibv_alloc_pd.many"])
        self.assertEqual(browser.run("document.querySelector('.filters output').value"),
                         f"1 of {browser.run('document.querySelectorAll(`[data-v]`).length')} shown")
        browser.open(self.paths["report"])
        browser.run(set_input("select[data-by=c]", "e.value='pd'"))
        browser.run(set_input("select[data-by=l]", "e.value='should'"))
        browser.run(set_input("input[type=search]", "e.value='A THOUSAND'"))
        self.assertEqual(browser.run("[].filter.call(document.querySelectorAll('[data-v]'),function(r){return !r.hidden})"
                                     ".map(function(r){return r.id})"), ["ibv_alloc_pd.many"])
        browser.open(self.paths["compare"])
        before = browser.run(VISIBLE)
        browser.run(set_input(".filters input[value=NOT-TESTED]", "e.checked=false"))
        self.assertEqual(browser.run(VISIBLE), before, "a row with another verdict on some device stays")
        for kind in ("DEVIATES", "EXPECTED"):
            browser.run(set_input(f".filters input[value={kind}]", "e.checked=false"))
        self.assertLess(browser.run(VISIBLE), before)

    def test_keyboard(self):
        browser = self.browser
        browser.open(self.paths["report"])
        seen = {}
        for _ in range(150):
            browser.key("Tab", 9)
            what = browser.run("(function(){var e=document.activeElement,s=getComputedStyle(e);return {tag:e.tagName,"
                               "type:e.type||'',id:(e.parentElement||{}).id||'',outline:s.outlineStyle!=='none'"
                               "&&parseFloat(s.outlineWidth)>0}})()")
            self.assertTrue(what["outline"], what)
            kind = what["type"] or what["tag"]
            if kind not in seen:
                seen[kind] = what
                if kind == "checkbox":
                    browser.key(" ", 32, " ")
                    self.assertFalse(browser.run("document.activeElement.checked"))
                    browser.key(" ", 32, " ")
                if kind == "SUMMARY":
                    browser.key("Enter", 13, "\r")
                    self.assertTrue(browser.run("document.activeElement.parentElement.open"))
                    break
        self.assertLessEqual({"A", "checkbox", "select-one", "search", "SUMMARY"}, set(seen))

    def test_it_opens_on_what_deviates_and_one_click_shows_the_calls(self):
        browser = self.browser
        browser.open(self.paths["report"])
        self.assertEqual(browser.run("document.querySelector('.answer').textContent"), "3 clauses deviate")
        order = browser.run("[].map.call(document.querySelectorAll('#deviations details'),function(d){return d.id})")
        self.assertEqual(order[0], "ibv_reg_mr.fields", "a crash comes first")
        self.assertEqual(order[-1], "ibv_alloc_pd.many", "what is expected comes last")
        browser.run("document.querySelector('#deviations summary').click()")
        text = browser.run("document.querySelector('#deviations details').innerText")
        for part in ("getppid()", "The region's address", "ibv_reg_mr(3), DESCRIPTION", "killed by signal"):
            self.assertIn(part, text)
        browser.run("document.querySelector('.ref a').click()")
        wait = "new Promise(function(done){setTimeout(function(){done(document.querySelector(':target').open)},0)})"
        self.assertTrue(browser.run(wait), "a link opens its clause")

    def test_print(self):
        browser = self.browser
        for page in self.each():
            self.assertTrue(browser.printed().startswith(b"%PDF-"))
        browser.look(medium="print")
        browser.open(self.paths["report"])
        self.assertFalse(browser.run("document.querySelector('.filters').checkVisibility()"))
        browser.run("dispatchEvent(new Event('beforeprint'))")
        self.assertEqual(browser.run("document.querySelectorAll('details:not([open])').length"), 0)
        browser.run("dispatchEvent(new Event('afterprint'))")
        self.assertGreater(browser.run("document.querySelectorAll('details:not([open])').length"), 0)

    def test_pictures(self):
        folder = os.environ.get("CONFORMANCE_SCREENSHOTS")
        if not folder:
            self.skipTest("no CONFORMANCE_SCREENSHOTS")
        for scheme, dark in SCHEMES.items():
            for width in (400, 1200):
                for page in self.each(width=width, height=1000, dark=dark):
                    self.browser.screenshot(f"{folder}/{page}-{width}-{scheme}.png")
        self.browser.look()
        self.browser.open(self.paths["report"])
        self.browser.run("document.querySelector('#deviations summary').click();"
                         "document.querySelector('#deviations').scrollIntoView()")
        self.browser.screenshot(f"{folder}/report-open.png")


if __name__ == "__main__":
    scripted.program, scripted.prefix = sys.argv[1], sys.argv[2:]
    if devtools.find() is None:
        print("no Chromium: scripts/install-packages.sh test installs it")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
