# SPDX-License-Identifier: BSD-2-Clause
"""How many headers of ours a source file opens, directly and through other headers. To change such a file one has to know
what is in them, so the files where the data path begins have a limit. With --list: each header, and who includes it.
"""

import collections
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1]) / "emulator"
LIMITS = {"engine/post/post_send.cc": 15}


def included(file):
    """The headers that `file` includes itself, of those in the tree."""
    names = re.findall(r'^#include "([^"]+)"', (root / file).read_text(), re.M)
    return [name for name in names if (root / name).exists()]


def opened(file):
    """Header -> the first file that includes it, nearest first."""
    by, ahead = {}, collections.deque([file])
    while ahead:
        here = ahead.popleft()
        for name in included(here):
            if name not in by:
                by[name] = here
                ahead.append(name)
    return by


failed = False
for file, limit in LIMITS.items():
    by = opened(file)
    failed |= not 0 < len(by) <= limit
    print(f"{file} opens {len(by)} headers, at most {limit} allowed")
    if failed or "--list" in sys.argv:
        print("\n".join(f"  {name}, included by {who}" for name, who in by.items()))
sys.exit(failed)
