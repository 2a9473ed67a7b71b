# SPDX-License-Identifier: BSD-2-Clause
"""Where process_vm_readv(2) and _writev(2) are refused, as in strict containers, and where no process can pass on its
/proc/self/mem either, so that requests go as frames: everything works all the same."""

import os
import re

from cases.node import status_shows_pair
from cases.perftest import Row, measure
from cases.pingpong import exchange
from cases.rdma_cm import multicast
from harness.failure import Skip, expect
from harness.processes import Node
from harness.refusing import refusing
from harness.registry import add, case

# name: argument of refuse.cc
PLACES = {"EPERM": "EPERM", "ENOSYS": "ENOSYS", "both": "EPERM+memory-file"}


# name: the row of perftest
MEASURED = {
    "ib_write_bw": Row("ib_write_bw", "", ("-s", 1 << 20), 100, (1 << 20,)),
    "ib_write_lat": Row("ib_write_lat", "", ("-s", 64), 1000, (64,)),
    "ib_send_bw": Row("ib_send_bw", ""),
    "ib_read_bw": Row("ib_read_bw", ""),
    "ib_atomic_bw": Row("ib_atomic_bw", ""),
    "ib_send_lat.ud": Row("ib_send_lat", "", ("-c", "UD", "-s", 4096), 500, (4096,)),
    "ib_write_bw.uc": Row("ib_write_bw", "", ("-c", "UC")),
    "ib_send_bw.xrc": Row("ib_send_bw", "", ("-c", "XRC")),
}


def conforms(settings, what):
    suite = os.path.join(settings.build, "bin", "verbs-conformance")
    if not os.path.exists(suite):
        raise Skip("verbs-conformance is not built")
    with Node(settings, as_user=refusing(settings, what)) as node:
        said = re.search(r"(\d+) CONFORMS?\b", node.run(suite, "--quick").out)
        expect(said and int(said.group(1)) > 0, "the suite reports no clause that conforms")


for name, place in PLACES.items():
    for size, rounds in ((64, 1000), (65536, 100)):
        add(f"refused.{name}.ibv_rc_pingpong.size_{size}",
            lambda settings, p=place, s=size, n=rounds:
            exchange(settings, ("-g", 1), size=s, iterations=n, as_user=refusing(settings, p)))
    for program, row in MEASURED.items():
        add(f"refused.{name}.{program}",
            lambda settings, p=place, r=row: measure(settings, r, as_user=refusing(settings, p)))
    add(f"refused.{name}.mckey", lambda settings, p=place: multicast(settings, refusing(settings, p)), processors=1)
    add(f"refused.{name}.status", lambda settings, p=place: status_shows_pair(settings, refusing(settings, p)), processors=1)
    add(f"refused.{name}.conformance", lambda settings, p=place: conforms(settings, p), processors=1)


@case("refused.doctor", processors=1)
def doctor_tells(settings):
    for place, sentence in {"EPERM": "process_vm_readv is refused", "EPERM+memory-file": "go over sockets"}.items():
        with Node(settings, as_user=refusing(settings, place)) as node:
            expect(sentence in node.run(node.verbena, "doctor").out, f"verbena doctor does not say: {sentence}")
