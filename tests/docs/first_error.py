# SPDX-License-Identifier: BSD-2-Clause
"""What a program says that is started without `verbena run` stands in the README, with the remedy."""

import os
import pathlib
import re
import subprocess
import sys

SKIP = 77
readme = (pathlib.Path(sys.argv[1]) / "README.md").read_text()
environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"LC_ALL": "C"}
try:
    seen = subprocess.run(["ibv_devices"], env=environment, capture_output=True, text=True, timeout=20, check=False)
except FileNotFoundError:
    print("ibv_devices is not installed")
    sys.exit(SKIP)
if seen.returncode == 0:
    print("this machine has verbs of its own")
    sys.exit(SKIP)
said = seen.stderr.strip().rpartition(": ")[2]
paragraphs = [part for part in re.split(r"\n(?=- |\n)", readme) if said in " ".join(part.split())]
good = any("verbena run -- PROGRAM" in " ".join(part.split()) for part in paragraphs)
print(f"'{said}': " + ("the README has it with its remedy" if good else "README.md does not lead to `verbena run`"))
sys.exit(not good)
