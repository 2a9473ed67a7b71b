# SPDX-License-Identifier: BSD-2-Clause
"""The edits that plant faults in copies of the adapter's sources: edits/*.edits, docs/TESTING.md. Legal behaviour of
other drivers is planted in the same way: tests/variants.

An edit:

    === mw-bounds                           the faults it carries: names as in mutants.toml, "any" for is_any_mutant();
                                            more than fit on a line: on another that begins with ===
    file: emulator/engine/memory/window_rules.cc
    --- old                                 text that stands exactly once in that file
    .length = binding.length,
    --- new                                 what the copy has in its place
    .length = mutated("mw-bounds") ? region.length - offset : binding.length,

Instead of `old` and `new`: `after` (or `before`) and `add`. Then the text that is found stays, and `add` comes on lines of
its own after the line in which the text ends (before the line in which it begins). White space counts nowhere. All edits
of a file look at the file as it is, and no two may change the same place.
"""

import pathlib
import re

here = pathlib.Path(__file__).resolve().parent
HEAD = '#include "mutant.h"\n'
KINDS = {"old": "new", "after": "add", "before": "add"}
ASKS = re.compile(r'\bmutated\(\s*"([^"]*)"')
ASKS_ANY = re.compile(r"\bis_any_mutant\(")
# What the mutated library consists of; faults elsewhere would have no effect.
PLACES = re.compile(r"(emulator/(?!tool/)|provider/(verbs|rdma_cm)/(?!entry\.cc$)).*\.cc$")


class Edit:
    def __init__(self, place, names):
        self.place, self.names, self.file, self.kind, self.found, self.text = place, names, "", "", None, None

    def __str__(self):
        return f"{self.place}: {' '.join(self.names)}"


def read_edits(faults):
    """All edits in order. Errors in their form are added to `faults`."""
    edits = []
    for path in (*sorted((here / "edits").glob("*.edits")), *sorted((here.parent / "variants").glob("*.edits"))):
        lines, part = None, ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            place, edit = f"{path.name}:{number}", edits[-1] if edits else None
            if line.startswith("=== ") and part == "head" and not edit.file:
                edit.names += line.split()[1:]
            elif line.startswith("=== "):
                edits.append(Edit(place, line.split()[1:]))
                lines, part = None, "head"
            elif line.startswith("--- ") and part:
                word = line[4:].strip()
                if part == "head" and word in KINDS:
                    edit.kind, lines = word, []
                    edit.found = lines
                elif part in KINDS and word == KINDS[part]:
                    lines = []
                    edit.text = lines
                else:
                    faults.append(f"{place}: '{line}' is not expected here")
                part = word
            elif lines is not None:
                lines.append(line)
            elif part == "head" and line.startswith("file: "):
                edit.file = line[6:].strip()
            elif line and not line.startswith("#"):
                faults.append(f"{place}: '{line}' is not expected here")
    whole = []
    for edit in edits:
        if edit.found is None or edit.text is None or not edit.names:
            faults.append(f"{edit}: a name, the text to look for or the text to put is missing")
        elif not PLACES.fullmatch(edit.file):
            faults.append(f"{edit}: '{edit.file}' is no .cc file of the mutated library")
        else:
            edit.found, edit.text = "\n".join(edit.found).strip(), "\n".join(edit.text).strip()
            whole.append(edit)
    return whole


def by_file(edits):
    files = {}
    for edit in edits:
        files.setdefault(edit.file, []).append(edit)
    return files


def plant(text, edits, faults):
    """`text` with `edits`; an edit that does not fit is added to `faults` and left out."""
    places = [i for i, letter in enumerate(text) if not letter.isspace()]
    letters = "".join(text[i] for i in places)
    changes = []
    for edit in edits:
        wanted = "".join(edit.found.split())
        first = letters.find(wanted)
        count = 0
        at = first
        while wanted and at != -1:
            count += 1
            at = letters.find(wanted, at + 1)
        if count != 1:
            faults.append(f"{edit}: its text is found {count} times in {edit.file}, not once")
            continue
        begin, end, new = places[first], places[first + len(wanted) - 1] + 1, edit.text
        if edit.kind == "after":
            begin = end = (text + "\n").index("\n", end)
            new = "\n" + new
        elif edit.kind == "before":
            begin = end = text.rfind("\n", 0, begin) + 1
            new += "\n"
        changes.append((begin, end, len(changes), new, edit))
    changes.sort(key=lambda change: change[:3])
    result, done, last = [], 0, None
    for begin, end, _, new, edit in changes:
        if begin < done:
            faults.append(f"{edit}: it changes the same place as {last}")
            continue
        result += [text[done:begin], new]
        done, last = end, edit
    return "".join(result) + text[done:]


def copies(root, edits, faults):
    """File -> the copy's text."""
    made = {}
    for file, wanted in by_file(edits).items():
        if (root / file).is_file():
            made[file] = HEAD + plant((root / file).read_text(), wanted, faults)
        else:
            faults += [f"{edit}: there is no {file}" for edit in wanted]
    return made
