# SPDX-License-Identifier: BSD-2-Clause
"""rdma(8) of iproute2, which asks over NETLINK_RDMA."""

import json
import os
import re
import shutil
import signal
import time

from cases.devices import GUID
from harness.failure import expect
from harness.processes import Node
from harness.registry import case

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RDMA = shutil.which("rdma", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/bin") or "rdma"


def show(node, *arguments):
    """What rdma prints, the objects of its JSON, and the same JSON indented."""
    plain = node.run(RDMA, *arguments)
    expect(not plain.err, f"rdma {' '.join(arguments)} wrote to stderr: {plain.err}")
    entries = json.loads(node.run(RDMA, "-j", *arguments).out)
    pretty = node.run(RDMA, "-j", "-p", *arguments)
    expect(json.loads(pretty.out) == entries, f"rdma -j -p {' '.join(arguments)} shows something else than -j")
    node.run(RDMA, "-d", *arguments)
    return plain.out, entries


@case("rdma.dev", quick=True, processors=1)
def devices(settings):
    with Node(settings, ["--devices", "2"]) as node:
        text, entries = show(node, "dev")
        expect([entry["ifname"] for entry in entries] == ["verbena0", "verbena1"], f"the devices are {entries}")
        expect([entry["ifindex"] for entry in entries] == [0, 1], f"their indices are {entries}")
        info = node.run("ibv_devinfo", "-d", "verbena1").out
        for name in ("node_guid", "sys_image_guid"):
            guid = re.search(rf"{name}:\s+(\S+)", info).group(1)
            expect(re.fullmatch(GUID, guid) and entries[1][name] == guid, f"{name} is {entries[1]}, not {guid}")
        version = re.search(r"fw_ver:\s+(\S+)", info).group(1)
        expect(text.count(f"node_type ca fw {version} ") == 2, f"rdma dev prints {text}")
        details = node.run(RDMA, "-d", "dev", "show", "verbena0").out
        expect("adaptive-moderation off" in details and "MEM_WINDOW_TYPE_2B" in details, f"the details are {details}")
        expect(node.start(RDMA, "dev", "show", "verbena7").wait(settings.patience) != 0, "there is a verbena7")


@case("rdma.link", quick=True, processors=1)
def links(settings):
    with Node(settings) as node:
        _, [link] = show(node, "link")
        interface = node.run("cat", "/sys/class/infiniband/verbena0/ports/1/gid_attrs/ndevs/0").out.strip()
        wanted = {"ifname": "verbena0", "port": 1, "state": "ACTIVE", "physical_state": "LINK_UP", "netdev": interface}
        expect({name: link.get(name) for name in wanted} == wanted, f"the link is {link}")
        node.run(node.verbena, "event", "verbena0", "port-down")
        _, [link] = show(node, "link", "show", "verbena0/1")
        expect((link["state"], link["physical_state"]) == ("DOWN", "DISABLED"), f"a port that is down is {link}")


@case("rdma.link_infiniband", processors=1)
def links_infiniband(settings):
    with Node(settings, ["--link-layer", "infiniband"]) as node:
        _, [link] = show(node, "link")
        expect((link["lid"], link["lmc"], link["subnet_prefix"]) == (1, 0, "fe80:0000:0000:0000"), f"the link is {link}")
        expect("netdev" not in link, f"there is a netdev: {link}")


@case("rdma.two_ports", quick=True, processors=1)
def two_ports(settings):
    """Each port is shown; rdma_cm is on the port that has the address."""
    with Node(settings, ["--ports", "2"]) as node:
        _, links = show(node, "link")
        expect([link["port"] for link in links] == [1, 2], f"the links are {links}")
        node.run(node.verbena, "event", "verbena0/2", "port-down")
        _, links = show(node, "link")
        expect([link["state"] for link in links] == ["ACTIVE", "DOWN"], f"with port 2 down the links are {links}")
        node.run(node.verbena, "event", "verbena0/2", "port-up")
        gids = [node.run("sh", "-c", f"cat /sys/class/infiniband/verbena0/ports/{port}/gids/*").out for port in (1, 2)]
        [port] = [port for port, text in enumerate(gids, 1) if "0000:ffff:7f00:0001" in text]
        server = node.start("rping", "-s", "-a", "127.0.0.1", "-p", "7471")
        listeners = wait_for_ids(node, server, settings.patience)
        expect(listeners and listeners[0].get("port", 0) == port, f"127.0.0.1 is on port {port}: {listeners}")
        node.run("rping", "-c", "-a", "127.0.0.1", "-p", "7471", "-C", "3")


@case("rdma.system", quick=True, processors=1)
def system(settings):
    with Node(settings) as node:
        text = node.run(RDMA, "system").out
        expect("netns shared" in text and "copy-on-fork on" in text, f"rdma system prints {text}")


@case("rdma.refused", quick=True, processors=1)
def refused(settings):
    """What nobody can do here fails, and changes nothing."""
    with Node(settings) as node:
        for arguments in (("dev", "set", "verbena0", "name", "other0"), ("system", "set", "netns", "exclusive"),
                          ("link", "add", "rxe0", "type", "rxe", "netdev", "lo"), ("link", "delete", "verbena0"),
                          ("statistic", "qp", "set", "link", "verbena0/1", "auto", "type", "on")):
            tried = node.start(RDMA, *arguments)
            expect(tried.wait(settings.patience) != 0, f"rdma {' '.join(arguments)} succeeds")
            expect(re.search("not supported|not permitted", tried.err), f"rdma says: {tried.err}")
        _, entries = show(node, "dev")
        expect([entry["ifname"] for entry in entries] == ["verbena0"], f"the devices are {entries}")


@case("rdma.resource", quick=True, processors=1)
def resources(settings):
    with Node(settings) as node:
        seen = node.run("/usr/bin/python3", os.path.join(FOLDER, "rdma_resources.py"), name="rdma_resources.py")
        expect(seen.out == "done\n", f"rdma_resources.py says {seen.out}")


@case("rdma.cm_id", quick=True, processors=1)
def connection_manager(settings):
    with Node(settings) as node:
        server = node.start("rping", "-s", "-a", "127.0.0.1", "-p", "7471")
        entries = wait_for_ids(node, server, settings.patience)
        expect(entries, "no id listens")
        listener = entries[0]
        expect(listener["ps"] == "TCP" and listener["state"] == "LISTEN" and listener["pid"] == server.pid,
               f"the listener is {listener}")
        expect("127.0.0.1:7471" in str(listener), f"its address is {listener}")
        text, _ = show(node, "resource", "show", "cm_id")
        expect("state LISTEN" in text, f"rdma prints {text}")


def wait_for_ids(node, server, seconds):
    """The ids of the node, once there is one that listens."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        expect(server.poll() is None, "the server has ended")
        entries = json.loads(node.run(RDMA, "-j", "resource", "show", "cm_id").out)
        if any(entry["state"] == "LISTEN" for entry in entries):
            return entries
    return []


@case("rdma.stopped_process", processors=1)
def stopped(settings):
    """A process that does not answer is left out, and the others are shown."""
    with Node(settings) as node:
        watches = [node.start("ibv_asyncwatch", name=f"ibv_asyncwatch {i}") for i in range(2)]
        for watch in watches:
            watch.wait_for_output("verbena0: async event FD", settings.patience)
        watches[0].signal(signal.SIGSTOP)
        entries = json.loads(node.run(RDMA, "-j", "resource", "show", "ctx").out)
        expect([entry["pid"] for entry in entries] == [watches[1].pid], f"the contexts are {entries}")
        watches[0].signal(signal.SIGCONT)
        entries = json.loads(node.run(RDMA, "-j", "resource", "show", "ctx").out)
        expect(sorted(entry["pid"] for entry in entries) == sorted(watch.pid for watch in watches),
               f"the contexts are {entries}")


@case("rdma.netlink", quick=True, processors=1)
def netlink(settings):
    with Node(settings) as node:
        seen = node.run("/usr/bin/python3", os.path.join(FOLDER, "netlink_client.py"), name="netlink_client.py")
        expect(seen.out == "done\n", f"netlink_client.py says {seen.out}")
