# SPDX-License-Identifier: BSD-2-Clause
"""`apt install ./verbena_*.deb && verbena run -- ibv_devinfo`, by this machine's own apt.

It writes into copies of /usr, /etc and /var that end with it: overlays in a mount namespace, and in a user
namespace where the user is not root. What the package depends on is there already, so nothing is downloaded;
test_clean_root.py begins with nothing.
"""

import os
import re
import tempfile
import unittest

from made import deb, outside, run

LONGEST = 10  # seconds of a processor, for all that a user types: a busy machine does not count

OVERLAYS = """
set -e
mount -t tmpfs tmpfs "$COPIES"
for folder in usr etc var; do
  mkdir -p "$COPIES/$folder/upper" "$COPIES/$folder/work"
  mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$COPIES/$folder/upper,workdir=$COPIES/$folder/work$OPTIONS" /$folder
done
"""
INSTALL = """
apt-get -q install -y --no-install-recommends -o APT::Sandbox::User=root "$VERBENA_DEB" </dev/null
verbena run -- ibv_devinfo
times
"""
REMOVE = """
dpkg --verify verbena
verbena doctor
apt-get -q remove -y -o APT::Sandbox::User=root verbena </dev/null
test ! -e /usr/bin/verbena -a ! -e /usr/lib/verbena
"""


class Install(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        root = os.geteuid() == 0
        self.enter = ["unshare", "--mount", *([] if root else ["--user", "--map-root-user"]), "sh", "-c"]
        self.environment = outside(COPIES=place.name, OPTIONS="" if root else ",userxattr", VERBENA_DEB=str(deb("verbena")),
                                   DEBIAN_FRONTEND="noninteractive", TMPDIR="/var/tmp", XDG_RUNTIME_DIR="",
                                   PATH="/usr/sbin:/usr/bin:/sbin:/bin")
        tried = run(*self.enter, OVERLAYS, env=self.environment, check=False)
        if tried.returncode != 0:
            self.skipTest(f"no overlays here: {tried.stderr.splitlines()[-1:]}")

    def test_by_apt(self):
        seen = run(*self.enter, OVERLAYS + INSTALL + REMOVE, env=self.environment, patience=500).stdout
        self.assertRegex(seen, r"hca_id:\s+verbena0")
        # times: user and system time, of the shell and of its children (POSIX shell, "times")
        spent = sum(int(minutes) * 60 + float(seconds) for minutes, seconds in re.findall(r"\b(\d+)m([0-9.]+)s\b", seen))
        self.assertGreater(spent, 0)
        self.assertLess(spent, LONGEST)
        print(f"installed and run in {spent:.1f} s")
