# SPDX-License-Identifier: BSD-2-Clause
"""The programs that only query: ibv_devices, ibv_devinfo, ibv_asyncwatch."""

import re
import signal

from harness.failure import expect
from harness.processes import Node
from harness.registry import case


def attributes(program):
    """{name: value} of ibv_devinfo's lines; where a name comes twice, the first device's."""
    found = {}
    for line in program.out.splitlines():
        name, colon, value = line.strip().partition(":")
        if colon and value.strip():
            found.setdefault(name, value.strip())
    return found


def expect_attributes(found, wanted):
    for name, pattern in wanted.items():
        value = found.get(name)
        expect(value is not None, f"ibv_devinfo shows no {name}")
        expect(re.fullmatch(pattern, value), f"ibv_devinfo shows {name} = '{value}', expected /{pattern}/")


GUID = r"(?!0000:0000:0000:0000)[0-9a-f]{4}(:[0-9a-f]{4}){3}"
POSITIVE = r"[1-9]\d*"

# Of every verbena device (ibv_query_device(3), ibv_query_port(3)).
DEVICE = {
    "hca_id": "verbena0",
    "transport": r"InfiniBand \(0\)",
    "node_guid": GUID,
    "sys_image_guid": GUID,
    "phys_port_cnt": "1",
    "max_mr_size": r"0x[0-9a-f]*[1-9a-f][0-9a-f]*",
    "page_size_cap": r"0x[0-9a-f]*[1-9a-f][0-9a-f]*",
    "max_qp": POSITIVE,
    "max_qp_wr": POSITIVE,
    "max_sge": POSITIVE,
    "max_sge_rd": POSITIVE,
    "max_cq": POSITIVE,
    "max_cqe": POSITIVE,
    "max_mr": POSITIVE,
    "max_pd": POSITIVE,
    "max_qp_rd_atom": POSITIVE,
    "max_qp_init_rd_atom": POSITIVE,
    "max_res_rd_atom": POSITIVE,
    "atomic_cap": r"ATOMIC_HCA \(1\)",  # serialised per adapter, not with the CPU (DESIGN: placing bytes)
    "max_pkeys": POSITIVE,
    "num_comp_vectors": POSITIVE,
    "state": r"PORT_ACTIVE \(4\)",
    "max_mtu": r"4096 \(5\)",
    "active_mtu": r"(1024 \(3\)|2048 \(4\)|4096 \(5\))",
    "pkey_tbl_len": POSITIVE,
    "gid_tbl_len": POSITIVE,
    "active_width": r"(1|2|4|8|12)X \(\d+\)",
    "active_speed": r"[0-9.]+ Gbps \(\d+\)",
    "phys_state": r"LINK_UP \(5\)",
    "max_msg_sz": "0x(4|8)0000000",  # 2^31 is the specification's limit; rxe and mlx5 say 2^30
    "GID[  0]": r"fe80:.*",
}
ETHERNET = {
    "link_layer": "Ethernet",
    "port_lid": "0",
    "GID[  0]": r"fe80:.*, RoCE v2",
    "GID[  1]": r"::ffff:\d+\.\d+\.\d+\.\d+, RoCE v2",
}
INFINIBAND = {
    "link_layer": "InfiniBand",
    "port_lid": POSITIVE,
    "sm_lid": r"\d+",
}


@case("ibv_devices", quick=True, processors=1)
def ibv_devices(settings):
    with Node(settings) as node:
        seen = node.run("ibv_devices")
        expect(re.search(r"^\s*verbena0\s+[0-9a-f]{16}\s*$", seen.out, re.M), "ibv_devices does not list verbena0")
        expect("0000000000000000" not in seen.out, "verbena0 has no GUID")
        expect(not seen.err, f"ibv_devices wrote to stderr: {seen.err}")


@case("ibv_devices.three", processors=1)
def three_devices(settings):
    with Node(settings, ["--devices", "3"]) as node:
        seen = node.run("ibv_devices")
        guids = re.findall(r"^\s*(verbena\d)\s+([0-9a-f]{16})\s*$", seen.out, re.M)
        expect([name for name, _ in guids] == ["verbena0", "verbena1", "verbena2"], f"the devices are {guids}")
        expect(len({guid for _, guid in guids}) == 3, f"two devices share a GUID: {guids}")


def devinfo(settings, options, wanted):
    with Node(settings, options) as node:
        seen = node.run("ibv_devinfo", "-v")
        found = attributes(seen)
        expect_attributes(found, {**DEVICE, **wanted})
        expect(int(found["max_qp"]) >= 16384, f"max_qp is {found['max_qp']}, below 16384")
        expect(int(found["num_comp_vectors"]) >= 1, "no completion vector")
        # Of rdma-core 44: IBV_DEVICE_ATOMIC_WRITE has a bit in <infiniband/verbs.h> and no name in ibv_devinfo, which
        # of the QP types with packet pacing knows UD alone (RC, UC and XRC_SEND: 0x20C).
        unknown = set(re.findall(r"Unknown flags: (\S+)", seen.out)) - {"0x10000000000", "0x20C"}
        expect(not unknown, f"the device claims a capability that ibv_devinfo does not know: {unknown}")
        expect(not seen.err, f"ibv_devinfo wrote to stderr: {seen.err}")


@case("ibv_devinfo", quick=True, processors=1)
def devinfo_ethernet(settings):
    devinfo(settings, [], ETHERNET)


@case("ibv_devinfo.infiniband", processors=1)
def devinfo_infiniband(settings):
    devinfo(settings, ["--link-layer", "infiniband"], INFINIBAND)


@case("ibv_devinfo.unknown_device", processors=1)
def devinfo_unknown(settings):
    with Node(settings) as node:
        seen = node.start("ibv_devinfo", "-d", "verbena7")
        expect(seen.wait(settings.patience) != 0, "ibv_devinfo finds a device that does not exist")


@case("ibv_asyncwatch", quick=True, processors=1)
def asyncwatch(settings):
    with Node(settings) as node:
        watch = node.start("ibv_asyncwatch")
        watch.wait_for_output("verbena0: async event FD", settings.patience)
        expect(watch.poll() is None, "ibv_asyncwatch does not wait for events")
        watch.signal(signal.SIGTERM)
        expect(watch.wait(settings.patience) == -signal.SIGTERM, "ibv_asyncwatch did not end by the signal")
        expect("event_type" not in watch.out, "an event was reported although nothing happened")


# The result of ibv_get_async_event(3) after `verbena event DEVICE WHAT`: event_type, as ibv_asyncwatch names it, and
# its number in <infiniband/verbs.h>; DEVICE_FATAL has no port (ibv_get_async_event(3)). A port has to go down before it
# comes up.
HAPPENINGS = (
    ("port-down", "IBV_EVENT_PORT_ERR (10), port 1"),
    ("port-up", "IBV_EVENT_PORT_ACTIVE (9), port 1"),
    ("gid-change", "IBV_EVENT_GID_CHANGE (18), port 1"),
    ("address-change", "IBV_EVENT_GID_CHANGE (18), port 1"),
    ("device-fatal", "IBV_EVENT_DEVICE_FATAL (8), port "),
)


def reported(program):
    """The events that ibv_asyncwatch has printed, in order."""
    return re.findall(r"^\s*event_type (.*)$", program.out, re.M)


@case("ibv_asyncwatch.events", quick=True, processors=1)
def asyncwatch_events(settings):
    """Each event of the command is read as that event, once, by every process that has the device open."""
    with Node(settings) as node:
        watches = [node.start("ibv_asyncwatch", name=f"ibv_asyncwatch {i}") for i in range(2)]
        for watch in watches:
            watch.wait_for_output("verbena0: async event FD", settings.patience)
        expected = []
        for what, line in HAPPENINGS:
            told = node.run(node.verbena, "event", "verbena0", what, name=f"verbena event {what}")
            expect(told.out == f"verbena0: {what}, 2 processes on the node\n", f"the command says '{told.out}'")
            expected.append(line)
            for watch in watches:
                watch.wait_for_lines("event_type", len(expected), settings.patience)
                seen = reported(watch)
                expect(len(seen) == len(expected) and all(map(str.startswith, seen, expected)),
                       f"{watch.name}: after {what} the events are {seen}")


# What programs for management datagrams say (libibumad 44).
NO_UMAD = """
import ctypes
umad = ctypes.CDLL("libibumad.so.3")
umad.umad_init()
names = (ctypes.c_char * 20 * 8)()
print(umad.umad_get_cas_names(names, 8), names[0].value.decode(), umad.umad_open_port(b"verbena0", 1) < 0)
"""


@case("umad.absent", quick=True, processors=1)
def no_management_datagrams(settings):
    """libibumad, with which srp_daemon and infiniband-diags begin, finds the device and says what is missing."""
    with Node(settings) as node:
        seen = node.run("/usr/bin/python3", "-c", NO_UMAD, name="umad")
        expect(seen.out == "1 verbena0 True\n", f"libibumad finds {seen.out}")
        expect("/sys/class/infiniband_mad/abi_version" in seen.err and "is ib_umad module loaded?" in seen.err,
               f"it says {seen.err}")
