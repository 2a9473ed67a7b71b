# SPDX-License-Identifier: BSD-2-Clause
"""`verbena run --roce --peers`: packets of other machines are dropped and counted, those to the connection manager too."""

import json

from harness import ports
from harness.failure import expect
from rows import pingpong, roce
from rows.pair import serve_by_manager
from rows.table import group

SERVER, FRIEND, STRANGER = 0, 1, 2
rows = group("roce_trust", hosts=3, places=("namespaces",), roce=True, processors=1)


def listing(hosts):
    """The server takes packets of its friend, and of nobody else."""
    hosts[SERVER].options = ["--roce", hosts[SERVER].address, "--peers", "192.0.2.0/24," + hosts[FRIEND].address]


def dropped(host):
    node = next(node for node in json.loads(host.tool("status", "--json"))["nodes"] if node["processes"])
    return node["network"]["packets_dropped"]["from_strangers"]


@rows.row("friend")
def friend(hosts):
    listing(hosts)
    pingpong.exchange(hosts[:2], "ibv_rc_pingpong", (), 4096, pingpong.FEW)
    pingpong.exchange(hosts[:2], "ibv_ud_pingpong", (), 1024, pingpong.FEW)
    server, client, says = roce.MANAGED["ucmatose"]
    address = hosts[SERVER].address
    roce.between(hosts[:2], *([str(word).format(address) for word in line] for line in (server, client)), says)


@rows.row("stranger")
def stranger(hosts):
    """It sends until its retries are over. A UD message of it arrives nowhere, either."""
    listing(hosts)
    for program, says in (("ibv_rc_pingpong", "status transport retry counter exceeded"), ("ibv_ud_pingpong", None)):
        port = ports.reserve()
        line = (program, "-g", 1, "-n", 10, "-p", port)
        server = hosts[SERVER].start(*line, name=f"{program} (server)")
        hosts[SERVER].wait_listening(port, server)
        client = hosts[STRANGER].start(*line, hosts[SERVER].plain_address, name=f"{program} (stranger)")
        if says:
            expect(client.wait(hosts[SERVER].settings.patience) != 0, "the stranger got through")
            expect(says in client.out + client.err, "the stranger failed otherwise")
        roce.until(hosts[SERVER], lambda: dropped(hosts[SERVER]) > 0, "count what the stranger sends")
        expect(server.poll() is None, "the server has ended")
        for side in (server, client):
            side.kill()


@rows.row("stranger_by_manager")
def stranger_by_manager(hosts):
    listing(hosts)
    server = serve_by_manager(hosts, ("rping", "-s", "-a", hosts[SERVER].address, "-C", 5, "-v"))
    before = dropped(hosts[SERVER])
    client = hosts[STRANGER].start("rping", "-c", "-a", hosts[SERVER].address, "-C", 1)
    roce.until(hosts[SERVER], lambda: dropped(hosts[SERVER]) > before, "count the stranger's REQ")
    expect(server.poll() is None, "the server has ended")
    expect("data" not in server.out, "the server serves a stranger")
    client.kill()
    friend = hosts[FRIEND].start("rping", "-c", "-a", hosts[SERVER].address, "-C", 5, "-v")
    expect("ping data" in roce.finished(hosts, friend).out, "the friend is not served")


@rows.row("warning")
def warning(hosts):
    """A program at `verbena run --roce` is told that anybody may send; with --peers it is told what remains."""
    for options, says in ((["--roce", hosts[SERVER].address], "--peers CIDR"),
                          (["--roce", hosts[SERVER].address, "--peers", hosts[FRIEND].address], "can be forged")):
        hosts[SERVER].options = options
        program = hosts[SERVER].start("true")
        expect(program.wait(hosts[SERVER].settings.patience) == 0, "true failed")
        expect("no authentication" in program.err and says in program.err, f"it says '{program.err}'")
