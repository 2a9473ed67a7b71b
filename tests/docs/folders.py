# SPDX-License-Identifier: BSD-2-Clause
"""Folders include each other in one direction only: docs/ARCHITECTURE.md lists them in an order, and an #include leads to
the same folder or to one further down. There is no exemption.

There is one include path for all folders, so the compiler sees none of this.
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
# The folders that an include path starts from, by the folder of the file that includes.
STARTS = {"emulator": ["emulator"], "provider": ["provider", "emulator"], "conformance": ["conformance"]}
# What the provider may know of the emulator: its interface, not its inside.
INTERFACE = {"emulator/insight.h", "emulator/observe/log_listener.h", "emulator/findings/families.h", "emulator/findings/rules.h", "emulator/findings/variables.h",  # of the checker
             "emulator/engine/rules/qp_state_table.h", "emulator/engine/rules/send_rules.h",
             "emulator/engine/rules/vendor_error.h",  # pure tables, for it
             "emulator/emulator.h", "emulator/sigbus.h", "emulator/program_memory.h", "emulator/no_cancellation.h", "emulator/own_thread.h", "emulator/cm/cm.h",
             "emulator/observe/log.h", "emulator/survey/counters.h", "emulator/survey/devices.h", "emulator/survey/snapshot.h"}


def order():
    """Folder -> its place, 0 at the bottom, from the table "Folders"."""
    text = (root / "docs/ARCHITECTURE.md").read_text()
    folders = re.findall(r"^\| `([^`]+)` \|", text.split("## Folders", 1)[1].split("\n## ", 1)[0], re.M)
    return {folder: place for place, folder in enumerate(reversed(folders))}


places = order()
wrong, seen = [], 0
for top, starts in STARTS.items():
    for file in sorted((root / top).rglob("*")):
        if file.suffix not in (".cc", ".h", ".c"):
            continue
        here = str(file.parent.relative_to(root))
        if here not in places:
            wrong.append(f"{here} is missing in the table of docs/ARCHITECTURE.md")
            places[here] = len(places)
        for included in re.findall(r'^#include "([^"]+)"', file.read_text(), re.M):
            path = next((f"{start}/{included}" for start in starts if (root / start / included).exists()), None)
            if path is None:
                continue  # generated
            seen += 1
            there = path.rsplit("/", 1)[0]
            if places.get(there, len(places)) > places[here]:
                wrong.append(f"{file.relative_to(root)} includes {included}: {there} stands above {here}")
            if top == "provider" and there.startswith("emulator") and path not in INTERFACE:
                wrong.append(f"{file.relative_to(root)} includes {included}, which is no interface of the emulator")
wrong += [f"{folder} is in the table and not in the tree" for folder in places if not (root / folder).is_dir()]
print("\n".join(wrong) or f"{seen} includes in {len(places)} folders, all of them down")
sys.exit(bool(wrong) or seen < 500)
