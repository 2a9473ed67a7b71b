# SPDX-License-Identifier: BSD-2-Clause
"""A system that mmdebstrap makes from this machine's package sources, with nothing but apt: two commands, ten
seconds.

Needs root, mmdebstrap (scripts/install-packages.sh does not install it) and the package sources.
"""

import os
import pathlib
import shutil
import tempfile
import time
import unittest

from made import deb, run

LONGEST = 10  # seconds
INSTALL = "apt-get -q install -y /verbena.deb </dev/null && verbena run -- ibv_devinfo"


def sources(release):
    """The entries of this machine's apt, in whichever files they are, for mmdebstrap's standard input."""
    targets = run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)").stdout.split("\n")
    return "".join(sorted({f"deb {line} main\n" for line in targets if line.split()[1:2] and line.split()[1].startswith(release)}))


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("mmdebstrap"), "needs root and mmdebstrap")
class CleanRoot(unittest.TestCase):
    def test_two_commands(self):
        release = run("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME").stdout.strip()
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            root = pathlib.Path(name) / "root"
            run("mmdebstrap", "--variant=apt", release, root, "-", input=sources(release), patience=1500)
            shutil.copy(deb("verbena"), root / "verbena.deb")
            inside = ["unshare", "--mount", "sh", "-c", 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && '
                      'exec chroot "$0" sh -c "$1"', str(root)]
            run(*inside, "apt-get -q update")
            began = time.monotonic()
            seen = run(*inside, INSTALL, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"})
            took = time.monotonic() - began
        self.assertRegex(seen.stdout, r"hca_id:\s+verbena0")
        self.assertLess(took, LONGEST, seen.stdout)
