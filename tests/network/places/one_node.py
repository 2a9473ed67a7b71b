# SPDX-License-Identifier: BSD-2-Clause
"""Every host is the same node, as without --ip: what fails here as well is no fault of the network. By hand, except
for what goes between the processes of a node as it does between nodes (rows/refused.py)."""

import contextlib

from harness.processes import Node
from places.host import Host, Place


class OneNode(Place):
    @contextlib.contextmanager
    def hosts(self, count):
        with contextlib.ExitStack() as stack:
            hosts = [stack.enter_context(Host(self.settings, f"host {i}", "127.0.0.1", None)) for i in range(count)]
            for host in hosts:
                host.options = []
                host.environment = lambda folder=hosts[0].folder: {**Node.environment(hosts[0]),
                                                                   "XDG_RUNTIME_DIR": folder}
            yield hosts
