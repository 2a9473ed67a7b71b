# SPDX-License-Identifier: BSD-2-Clause
"""Addresses that the machine loses and gets back while devices are open, as ibv_asyncwatch sees it."""

import contextlib
import os
import re
import time

from harness.failure import expect
from rows.table import group

rows = group("addresses", hosts=1, places=("namespaces",), processors=1)
LOST, BACK = ["GID_CHANGE", "PORT_ERR"], ["GID_CHANGE", "PORT_ACTIVE"]


def watch(host):
    watcher = host.start("ibv_asyncwatch")
    watcher.wait_for_output("async event FD", host.settings.patience)
    return watcher


def wait_for_events(watcher, wanted, patience):
    """Exactly these, and in this order."""
    deadline = time.monotonic() + patience
    while True:
        seen = re.findall(r"IBV_EVENT_(\w+)", watcher.out)
        expect(seen == wanted[:len(seen)], f"{watcher.name} saw {seen}, not {wanted}")
        if seen == wanted:
            return
        expect(time.monotonic() < deadline, f"{watcher.name} saw {seen} only, not {wanted}")
        time.sleep(0.01)


def expect_state(host, state):
    seen = host.run("ibv_devinfo").out
    expect(state in seen, f"ibv_devinfo does not say {state}: {seen}")


def loses_and_gets_back(host, lose, get_back):
    """Every process with an open device gets the event, once."""
    watchers = [watch(host), watch(host)]
    for change, told in ((lose, LOST), (get_back, LOST + BACK)):
        change()
        for watcher in watchers:
            wait_for_events(watcher, told, host.settings.patience)
    expect_state(host, "PORT_ACTIVE")


rows.add("taken_away_and_given_back", lambda hosts: loses_and_gets_back(hosts[0], hosts[0].take_address,
                                                                        hosts[0].give_address))
rows.add("interface_down_and_up", lambda hosts: loses_and_gets_back(hosts[0], hosts[0].take_down, hosts[0].bring_up))


@rows.row("device_opens_meanwhile")
def device_opens_meanwhile(hosts):
    """`verbena run` wants the address; a program under it that opens the device later finds a port that is down."""
    host = hosts[0]
    sign = os.path.join(host.folder, "sign")
    late = host.start("sh", "-c", f"echo waits; until test -e {sign}; do sleep 0.05; done; ibv_devinfo", name="ibv_devinfo")
    late.wait_for_output("waits", host.settings.patience)  # `verbena run` has looked at the address
    watcher = watch(host)
    host.take_address()
    wait_for_events(watcher, LOST, host.settings.patience)
    open(sign, "w").close()
    expect(late.wait(host.settings.patience) == 0 and "PORT_DOWN" in late.out, "the device is not there with its port down")
    host.give_address()
    wait_for_events(watcher, LOST + BACK, host.settings.patience)


@contextlib.contextmanager
def second_address(host, address):
    own = host.options
    host.add_address(address)
    host.options = [*own, "--ip", address]
    try:
        yield
    finally:
        host.options = own


@rows.row("one_of_two")
def one_of_two(hosts):
    """Other nodes reach the node at the other address: its port stays up."""
    host, address = hosts[0], "10.78.0.2"
    with second_address(host, address):
        watcher = watch(host)
        host.remove_address(address)
        wait_for_events(watcher, LOST[:1], host.settings.patience)
        host.add_address(address)
        wait_for_events(watcher, LOST[:1] + BACK[:1], host.settings.patience)
        host.remove_address(address)
