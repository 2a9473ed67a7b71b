# SPDX-License-Identifier: BSD-2-Clause
"""docs/ERRORS.md lists exactly the vendor_err numbers of engine/rules/vendor_error.{h,cc}, with the same words."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
header = (root / "emulator/engine/rules/vendor_error.h").read_text()
source = (root / "emulator/engine/rules/vendor_error.cc").read_text()
page = (root / "docs/ERRORS.md").read_text()

numbers = dict(re.findall(r"^\s+(\w+) = (0x[0-9a-f]{2}),", header, re.M))
coded = {(numbers[name], status, name, text)
         for name, status, text in re.findall(r'ROW\((\w+), IBV_WC_(\w+), \w+, \w+,\s*"([^"]*)"\)', source)}
written = set(re.findall(r"^\| (0x[0-9a-f]{2}) \| (\w+) \| (\w+) \| (.*) \|$", page, re.M))

for row in sorted(coded - written):
    print("in the code, not in docs/ERRORS.md:", " | ".join(row))
for row in sorted(written - coded):
    print("in docs/ERRORS.md, not in the code:", " | ".join(row))
sys.exit(not coded or coded != written)
