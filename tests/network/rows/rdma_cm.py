# SPDX-License-Identifier: BSD-2-Clause
"""The programs of rdmacm-utils between two nodes."""

import os

from cases import rdma_cm
from cases.rdma_cm import installed
from harness.failure import expect
from rows.pair import CLIENT, SERVER, by_manager, finish
from rows.table import group

rows = group("rdma_cm")
# With addresses of one machine; otherwise they take minutes.
LEFT_OUT = ("rping.ipv6", "rstream.its_own_sizes")


def between(hosts, row):
    installed(row.server[0])

    def placed(line):
        return tuple(hosts[SERVER].address if word == rdma_cm.ADDRESS else word for word in line)
    _, client = by_manager(hosts, placed(row.server), placed(row.client), row.server_ends)
    expect(row.says in client.out, f"{client.name} did not say '{row.says}'")


def from_own_address(hosts):
    """cmtime -b names the client's address."""
    line = ("cmtime", "-s", hosts[SERVER].address, "-b", hosts[CLIENT].address, "-c", 50)
    _, client = by_manager(hosts, ("cmtime",), line, server_ends=False)
    expect("bind addr" in client.out, f"{client.name} did not say 'bind addr'")


def multicast(hosts, address):
    """mckey: one receiver beside the sender, two on the other node."""
    def line(host):
        return ("mckey", "-m", address, "-b", host.address)
    receivers = [host.start(*line(host), name=f"mckey (receiver {i} on {host.name})")
                 for i, host in enumerate((hosts[0], hosts[1], hosts[1]))]
    hosts[0].wait_for("groups", 1)
    hosts[1].wait_for("groups", 2)
    sender = hosts[0].start(*line(hosts[0]), "-s", name="mckey (sender)")
    finish(hosts, sender, *receivers)
    for receiver in receivers:
        expect("return status 0" in receiver.out, f"{receiver.name} did not receive")


for each in rdma_cm.ROWS:
    if each.name not in LEFT_OUT and not each.run_options and each.name != "cmtime.bound":
        rows.add(each.name, lambda hosts, r=each: between(hosts, r), quick=each.quick)
rows.add("cmtime.bound", from_own_address)
rows.add("mckey.on_both_nodes", lambda hosts: multicast(hosts, "224.10.10.10"))


@rows.row("rping.nobody_listens")
def nobody_listens(hosts):
    hosts[SERVER].run("true")  # the node exists, and no process listens
    client = hosts[CLIENT].start("rping", "-c", "-a", hosts[SERVER].address, "-C", 1)
    expect(client.wait(hosts[CLIENT].settings.patience) != 0, "rping connected to nobody")


@rows.row("rcopy.file")
def copy(hosts):
    source, target = os.path.join(hosts[CLIENT].folder, "source"), os.path.join(hosts[SERVER].folder, "target")
    with open(source, "wb") as file:
        file.write(os.urandom(3_000_001))
    by_manager(hosts, ("rcopy",), ("rcopy", source, f"{hosts[SERVER].address}:{target}"), server_ends=False)
    expect(open(source, "rb").read() == open(target, "rb").read(), "the copy differs")
