# SPDX-License-Identifier: BSD-2-Clause
"""Dependencies point down only: what a room includes belongs to it, or to a room that the table "Rooms" of
docs/ARCHITECTURE.md says it knows, and those below. Headers between `emulator` and its users, doors.

There is one include path for all rooms, so the compiler sees none of this.
"""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
# Which folder a first component of an include path is, by who includes it.
ROOTS = {"emulator": ["emulator"], "provider": ["provider", "emulator"], "conformance": ["conformance"]}
FOR_ALL = {"emulator/observe"}  # the log serves all rooms
# What lies in no room: the doors, and a guard that all of them may hold.
DOORS = {"emulator/emulator.h", "emulator/no_cancellation.h", "emulator/cm/cm.h", "provider/boundary/claim.h"}


def table():
    """{folder: names of what it knows} from the table of rooms."""
    text = (root / "docs/ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| .* \| ([^|]*) \|$", text, re.M)
    return {folder: set(re.findall(r"[\w./-]+", knows)) for folder, knows in rows}


def room_of(path, rooms):
    """The deepest folder of the table that has the file."""
    fitting = [room for room in rooms if path.startswith(room + "/")]
    return max(fitting, key=len, default=None)


def below(room, rooms):
    """Itself and, down to the bottom, what the table says it knows."""
    known, to_see = set(), [room]
    while to_see:
        here = to_see.pop()
        if here in known:
            continue
        known.add(here)
        for word in rooms.get(here, ()):
            if word.endswith(".h"):
                continue  # a door, and nothing behind it
            named = room_of(word + "/", rooms) if "/" in word else f"emulator/{word}"
            if named in rooms:
                to_see.append(named)
    return known


rooms = table()
wrong, seen = [], 0
for top in ROOTS:
    for file in sorted((root / top).rglob("*")):
        if file.suffix not in (".cc", ".h", ".c"):
            continue
        here = str(file.relative_to(root))
        room = room_of(here, rooms)
        for included in re.findall(r'^#include "([^"]+)"', file.read_text(), re.M):
            there = next((f"{base}/{included}" for base in ROOTS[top] if (root / base / included).exists()), None)
            if there is None or there in DOORS:
                continue
            seen += 1
            target = room_of(there, rooms)
            # A room within a room is its equal's: engine's doors are for remote, too, and the other way round.
            if target in FOR_ALL or room is None or target is None or target in below(room, rooms):
                continue
            if target.startswith(room + "/") or room.startswith(target + "/"):
                continue
            wrong.append(f"{here} includes {included}: {room} does not know {target}")
print("\n".join(wrong) or f"{seen} includes, all of them down")
sys.exit(bool(wrong) or seen < 500 or len(rooms) < 10)
