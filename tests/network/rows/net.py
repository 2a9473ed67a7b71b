# SPDX-License-Identifier: BSD-2-Clause
"""`verbena run --net`: nodes with all addresses of their machines, here of both families on two interfaces."""

import contextlib
import ipaddress

from cases.pingpong import addresses
from harness.failure import expect
from places.namespaces import ip
from rows.pair import by_port
from rows.table import group

rows = group("net", places=("namespaces",))
FEW = 50
LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def two_interfaces(hosts):
    """The addresses of each, by host."""
    ip("link", "add", "name", "second", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
    ip("link", "set", "second", "up")
    own = [host.options for host in hosts]
    ports, each = [], []
    try:
        for number, host in enumerate(hosts, 2):
            on_second = f"10.78.0.{number}", f"fd78::{number}"
            host.add_address(f"fd77::{number}")
            ports.append(host.add_interface("second", *on_second))
            host.options = ["--net", "--key", host.key]
            each.append([host.address, f"fd77::{number}", *on_second])
        yield each
    finally:
        for port in ports:
            ip("link", "del", port)
        for host, options, found in zip(hosts, own, each):
            host.remove_address(found[1])
            host.options = options
        ip("link", "del", "second")


def gids(host):
    """{GID: its index}, of those that others can reach."""
    show = "cd /sys/class/infiniband/verbena0/ports/1/gids && for i in $(ls | sort -n); do echo $i $(cat $i); done"
    return {gid: int(index) for index, gid in (line.split() for line in host.run("sh", "-c", show).out.splitlines())
            if not gid.startswith("fe80")}


def full(address):
    """A GID in sysfs' format."""
    return ipaddress.IPv6Address(address if ":" in address else f"::ffff:{address}").exploded


def exchange(hosts, tables, pair):
    """From one address to another."""
    indices = [table[full(address)] for table, address in zip(tables, pair)]
    sides = by_port(hosts, "ibv_rc_pingpong", ("-n", FEW, "-c"), *(("-g", index) for index in indices))
    for side, address in zip(sides, pair):
        seen = addresses(side)[0][2]
        expect(full(seen.replace("::ffff:", "")) == full(address), f"{side.name} uses {seen}, not {address}")


@rows.row("ibv_rc_pingpong.over_each_gid")
def over_each_gid(hosts):
    """Between the two, and within one of them; there over the loopback's addresses, too, which reach no other host."""
    with two_interfaces(hosts) as each:
        tables = [gids(host) for host in hosts]
        for table, own in zip(tables, each):
            expect(set(table) == set(map(full, (*own, LOOPBACK))), f"the GIDs are {table}, the addresses {own}")
        for pair in zip(*each):
            exchange(hosts, tables, pair)
        for address in (*each[0], LOOPBACK):
            exchange((hosts[0], hosts[0]), (tables[0], tables[0]), (address, address))
