# SPDX-License-Identifier: BSD-2-Clause
"""docs/ERRORS.md lists exactly the codes of observe/diagnostics.def, with the same words; and the numbers of failed
work requests are those of engine/rules/vendor_error.h. --write: brings the page's tables up to date."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
header = (root / "emulator/engine/rules/vendor_error.h").read_text()
source = (root / "emulator/observe/diagnostics.def").read_text()
path = root / "docs/ERRORS.md"
page = path.read_text()

TEXT = r'"((?:[^"\\]|\\.)*)"'
numbers = dict(re.findall(r"^\s+(\w+) = (0x[0-9a-f]{2}),", header, re.M))
completions = re.findall(r"^COMPLETION\((\w+), IBV_WC_(\w+), \w+, \w+,\s*" + ",\\s*".join([TEXT] * 3) + r"\)$", source, re.M)
refusals = re.findall(r"^REFUSAL\((\w+), " + ",\\s*".join([TEXT] * 4) + r"\)$", source, re.M)


def words(text):
    return text.replace('\\"', '"').replace("\\\\", "\\").replace("|", "\\|")


failed = {name for name, *_ in completions} != set(numbers) or not refusals
if failed:
    print("diagnostics.def and vendor_error.h do not name the same failed work requests")
tables = {
    "completions": ["| vendor_err | status (IBV_WC_) | code | rule that was broken | what to do |", "| --- | --- | --- | --- | --- |"] +
                   [f"| {numbers[name]} | {status} | {name} | {words(rule)} | {words(remedy)} |"
                    for name, status, rule, _, remedy in completions],
    "refusals": ["| code | errno | rule | source | what to do |", "| --- | --- | --- | --- | --- |"] +
                [f"| {code} | {words(errors)} | {words(rule)} | {words(where)} | {words(remedy)} |"
                 for code, errors, rule, where, remedy in refusals],
}
for name, lines in tables.items():
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.S)
    if not place.search(page):
        print(f"docs/ERRORS.md has no place for the table of {name}")
        failed = True
        continue
    page = place.sub(lambda match, new="\n".join(lines): f"{match[1]}\n{new}\n\n{match[2]}", page)
if page != path.read_text():
    if "--write" in sys.argv:
        path.write_text(page)
    else:
        print("docs/ERRORS.md is not up to date: python3 tests/docs/vendor_errors.py . --write")
        failed = True
sys.exit(failed)
