# SPDX-License-Identifier: BSD-2-Clause
"""Every relative link of the documents leads to a file that is there."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
broken = [f"{page.relative_to(root)}: {target}"
          for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]
          for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
          if not (page.parent / target).exists()]
print("\n".join(broken) or "all links lead somewhere")
sys.exit(bool(broken))
