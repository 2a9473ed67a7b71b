# SPDX-License-Identifier: BSD-2-Clause
"""Nodes on one machine, each with an address of its own out of 127.0.0.0/8. Needs nothing and no rights."""

import contextlib

from harness import ports
from places.host import Host, Place


class Loopback(Place):
    @contextlib.contextmanager
    def hosts(self, count):
        """Tests run side by side and all fabrics have the same port: what keeps them apart is the address."""
        number = ports.reserve()
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(Host(self.settings, f"host {i}", f"127.{number >> 8}.{number & 255}.{2 + i}",
                                            self.key)) for i in range(count)]
