# SPDX-License-Identifier: BSD-2-Clause
"""docs/FEATURES.md, or docs/ERRORS.md, names every verb, opcode, flag, completion status and event of the installed
<infiniband/verbs.h>.

A name may lack ibv_ and the enumeration's prefix; NAME_* stands for all that begin so.
"""

import pathlib
import re
import sys

PREFIXES = ("WR", "SEND", "ACCESS", "QP_CREATE", "QP_EX_WITH", "CREATE_CQ_ATTR", "QPT", "SRQT", "DEVICE", "EVENT")
# Bounds of a range.
NO_FEATURES = {"ACCESS_OPTIONAL_FIRST", "ACCESS_OPTIONAL_RANGE"}

root, header = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text()
words = set(re.findall(r"[A-Za-z0-9_]+\*?", (root / "docs/FEATURES.md").read_text() + (root / "docs/ERRORS.md").read_text()))
stems = tuple(word[:-1] for word in words if word.endswith("*") and len(word) > 4)


def named(*spellings):
    return any(word in words or word.startswith(stems) for word in spellings)


header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
missing = {verb for verb in re.findall(r"\b(ibv_[a-z0-9_]+)\s*\((?!\*)", header)
           if not named(verb, verb.removeprefix("ibv_"))}
enumerators = {name for body in re.findall(r"enum\s*\w*\s*\{(.*?)\}", header, re.S)
               for name in re.findall(r"^\s*IBV_(\w+)", body, re.M)} - NO_FEATURES
for prefix in PREFIXES:
    for name in enumerators:
        rest = name.removeprefix(prefix + "_")
        if rest != name and not named("IBV_" + name, name, rest):
            missing.add("IBV_" + name)
statuses = re.findall(r"^\s*IBV_WC_(\w+)", re.search(r"enum ibv_wc_status\s*\{(.*?)\}", header, re.S)[1], re.M)
missing |= {"IBV_WC_" + name for name in statuses if not named("IBV_WC_" + name, name)}
print("\n".join(sorted(missing)) or "all are there")
sys.exit(bool(missing) or not enumerators or not statuses)
