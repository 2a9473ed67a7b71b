# SPDX-License-Identifier: BSD-2-Clause
"""verbs-conformance in pair: the far ends of its tests are on the other node."""

import os
import re

from harness import ports
from harness.failure import Skip, expect
from rows.pair import CLIENT, SERVER
from rows.table import group

# The whole suite takes a minute on two processors that nobody else uses, and several on a slow and busy machine.
PATIENCE = 10  # times that of other programs

rows = group("conformance", places=("namespaces",), processors=1)


def pair(hosts, *selection):
    suite = os.path.join(hosts[0].settings.build, "bin", "verbs-conformance")
    if not os.path.exists(suite):
        raise Skip("verbs-conformance is not built")
    port = ports.reserve()
    server = hosts[SERVER].start(suite, "--serve", "--bind", hosts[SERVER].plain_address, "--port-tcp", port,
                                 name="verbs-conformance --serve")
    hosts[SERVER].wait_listening(port, server)
    client = hosts[CLIENT].start(suite, "--peer", f"{hosts[SERVER].plain_address}:{port}", *selection,
                                 name="verbs-conformance --peer")
    seen = client.wait(PATIENCE * hosts[CLIENT].settings.patience)
    expect(seen == 0, f"the suite ended with status {seen}")
    conforms = re.search(r"(\d+) CONFORMS?\b", client.out)
    expect(conforms and int(conforms.group(1)) > 0, "the suite reports no clause that conforms")


rows.add("quick", lambda hosts: pair(hosts, "--quick"))
rows.add("random", lambda hosts: pair(hosts, "--random", "40"), quick=False)
