# SPDX-License-Identifier: BSD-2-Clause
"""ibv_rc_pingpong of ibverbs-utils."""

import re

from cases.devices import attributes
from harness import ports
from harness.failure import expect
from harness.pair import run_pair
from harness.processes import Node
from harness.registry import add, case

PROGRAM = "ibv_rc_pingpong"
INFINIBAND = ("--link-layer", "infiniband")


def check(program, size, iterations):
    """The program's two lines of result: every byte went there and back."""
    total = re.search(r"^(\d+) bytes in ([0-9.]+) seconds = ", program.out, re.M)
    rounds = re.search(r"^(\d+) iters in ([0-9.]+) seconds = ([0-9.]+) usec/iter", program.out, re.M)
    expect(total and rounds, f"{program.name} printed no result")
    expect(int(total.group(1)) == 2 * size * iterations, f"{program.name} moved {total.group(1)} bytes")
    expect(int(rounds.group(1)) == iterations, f"{program.name} ran {rounds.group(1)} rounds")


def addresses(program):
    """((LID, QPN, GID) of this side, the same of the other)."""
    found = re.findall(r"(?:local|remote) address:\s+LID (0x\w+), QPN (0x\w+), PSN 0x\w+[,:] GID (\S+)", program.out)
    expect(len(found) == 2, f"{program.name} did not print two addresses")
    return found


def exchange(settings, options, run_options=(), size=4096, iterations=1000, program=PROGRAM, as_user=None):
    with Node(settings, run_options, as_user) as node:
        both = ("-s", size, "-n", iterations, "-c", *options)
        server, client = run_pair(node, program, both=both)
        for side in (server, client):
            check(side, size, iterations)
        mine, theirs = addresses(server)
        expect(addresses(client) == [theirs, mine], "the two sides do not name the same queue pairs")
        expect(mine[1] != theirs[1], "both queue pairs have the same number")


# name: options of the program, options of `verbena run`, quick
VARIANTS = {
    "infiniband": ((), INFINIBAND, True),
    "infiniband_gid0": (("-g", 0), INFINIBAND, False),
    "gid0": (("-g", 0), (), False),
    "gid1": (("-g", 1), (), True),
    "events": (("-g", 1, "-e"), (), True),
    "events_infiniband": (("-e",), INFINIBAND, False),
    "mtu_256": (("-g", 1, "-m", 256), (), False),
    "mtu_4096": (("-g", 1, "-m", 4096), (), False),
    "two_receives": (("-g", 1, "-r", 2), (), False),
    "service_level": (("-g", 1, "-l", 3), (), False),
}
for variant, (program_options, run_options, is_quick) in VARIANTS.items():
    add(f"{PROGRAM}.{variant}",
        lambda settings, o=program_options, r=run_options: exchange(settings, o, r), is_quick)

SIZES = (1, 8, 64, 1000, 1024, 4096, 65536, 1 << 20)
for message_size in SIZES:
    rounds_wanted = 100 if message_size >= 65536 else 1000
    add(f"{PROGRAM}.size_{message_size}",
        lambda settings, s=message_size, n=rounds_wanted: exchange(settings, ("-g", 1), size=s, iterations=n),
        quick=message_size in (1, 1 << 20))


@case(f"{PROGRAM}.many_rounds")
def many_rounds(settings):
    exchange(settings, ("-g", 1), iterations=50000)


@case(f"{PROGRAM}.ethernet_needs_gid", processors=1)
def ethernet_needs_gid(settings):
    """On Ethernet a path without a GRH is refused at RTR (EINVAL), as every RoCE adapter does."""
    with Node(settings) as node:
        port = ports.reserve()
        server = node.start(PROGRAM, "-p", port, name=f"{PROGRAM} (server)")
        ports.wait_listening(port, server, settings.patience)
        client = node.start(PROGRAM, "-p", port, "127.0.0.1", name=f"{PROGRAM} (client)")
        expect(server.wait(settings.patience) == 1, f"the server ended with status {server.poll()}, not 1")
        expect(client.wait(settings.patience) == 1, f"the client ended with status {client.poll()}, not 1")
        expect("Failed to modify QP to RTR" in server.err, "the server was not refused at RTR")


# Capabilities: (option, attribute of ibv_devinfo -v that shows it, what the program prints without).
CAPABILITIES = {
    "timestamps": ("-t", r"completion timestamp_mask:\s+0x", "isn't completion timestamp capable"),
    "odp": ("-o", r"general_odp_caps:\s+ODP_SUPPORT\s", "isn't ODP capable"),
    "device_memory": ("-j", r"maximum available device memory:\s+[1-9]", "Device doesn't support dm allocation"),
}


def capability(settings, option, claim, refusal):
    """What the device claims, works; what it does not claim, is refused with the program's own message."""
    with Node(settings) as node:
        claimed = re.search(claim, node.run("ibv_devinfo", "-v").out)
        if not claimed:
            seen = node.run(PROGRAM, "-g", 1, option, status=1)
            expect(refusal in seen.err, f"{PROGRAM} {option} did not say '{refusal}'")
            return
    exchange(settings, ("-g", 1, option))


for what, (flag, pattern, sentence) in CAPABILITIES.items():
    add(f"{PROGRAM}.{what}",
        lambda settings, f=flag, p=pattern, s=sentence: capability(settings, f, p, s))


@case(f"{PROGRAM}.second_device")
def second_device(settings):
    exchange(settings, ("-g", 1, "-d", "verbena1"), ("--devices", 2))


@case(f"{PROGRAM}.across_devices")
def across_devices(settings):
    """Two adapters of one node reach each other as two adapters on one switch do."""
    with Node(settings, ("--devices", 2)) as node:
        server, client = run_pair(node, PROGRAM, ("-d", "verbena0"), ("-d", "verbena1"), ("-g", 0, "-n", 1000))
        for side in (server, client):
            check(side, 4096, 1000)
        mine, theirs = addresses(server)
        expect(mine[2] != theirs[2], "two devices have the same link-local GID")


@case(f"{PROGRAM}.across_infiniband_devices")
def across_infiniband_devices(settings):
    with Node(settings, ("--devices", 2, *INFINIBAND)) as node:
        server, client = run_pair(node, PROGRAM, ("-d", "verbena0"), ("-d", "verbena1"), ("-n", 1000))
        for side in (server, client):
            check(side, 4096, 1000)
        mine, theirs = addresses(server)
        expect(mine[0] != theirs[0], "two devices have the same LID")


@case(f"{PROGRAM}.mtu_within_port", processors=1)
def mtu_within_port(settings):
    """The active MTU that ibv_devinfo shows is one that a path may use."""
    with Node(settings) as node:
        active = attributes(node.run("ibv_devinfo", "-v"))["active_mtu"].split()[0]
    exchange(settings, ("-g", 1, "-m", active))
