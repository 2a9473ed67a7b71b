# SPDX-License-Identifier: BSD-2-Clause
"""Several programs on one node, and what the node shows of them."""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time

from cases.pingpong import PROGRAM, check
from harness import ports
from harness.failure import Failure, Skip, expect
from harness.pair import no_trouble, run_pair
from harness.perftest import HARMLESS
from harness.processes import Node
from harness.registry import case

FOREVER = 1_000_000_000  # rounds: the test ends it
IDLE_SECONDS = 2
IDLE_TICKS = 2  # a program that waits may be charged for its start, not for waiting


# Four that poll: on two processors each of them is not scheduled for half of the time.
MESSAGES = 500


@case("four_processes", quick=True)
def four_processes(settings):
    """Two pairs at once on one node; neither gets anything of the other."""
    with Node(settings) as node:
        pairs = []
        for number in range(2):
            port = ports.reserve()
            server = node.start(PROGRAM, "-g", 1, "-n", MESSAGES, "-c", "-p", port, name=f"server {number}")
            pairs.append((port, server))
        clients = []
        for number, (port, server) in enumerate(pairs):
            ports.wait_listening(port, server, settings.patience)
            clients.append(node.start(PROGRAM, "-g", 1, "-n", MESSAGES, "-c", "-p", port, "127.0.0.1",
                                      name=f"client {number}"))
        for side in [*clients, *(server for _, server in pairs)]:
            seen = side.wait(settings.patience)
            expect(seen == 0, f"{side.name} ended with status {seen}")
            no_trouble(side)
            check(side, 4096, MESSAGES)


def waiting_pingpong(node):
    server = node.start(PROGRAM, "-g", 1, "-p", port := ports.reserve(), name="waiting server")
    ports.wait_listening(port, server, node.settings.patience)
    return server


def waiting_asyncwatch(node):
    watch = node.start("ibv_asyncwatch")
    watch.wait_for_output("async event FD", node.settings.patience)
    return watch


def stays_idle(settings, begin):
    """The wait is the measurement: two seconds of waiting must cost nothing."""
    with Node(settings) as node:
        program = begin(node)
        before = program.cpu_ticks()
        time.sleep(IDLE_SECONDS)
        spent = program.cpu_ticks() - before
        expect(program.poll() is None, f"{program.name} ended")
        expect(spent < IDLE_TICKS, f"{program.name} used {spent} clock ticks in {IDLE_SECONDS} s of waiting")


@case("idle.pingpong_server", processors=1)
def idle_pingpong(settings):
    stays_idle(settings, waiting_pingpong)


@case("idle.asyncwatch", processors=1)
def idle_asyncwatch(settings):
    stays_idle(settings, waiting_asyncwatch)


def queue_pairs(node):
    """Every queue pair that `verbena status` shows, with its process's pid."""
    return [{"pid": process["pid"], **qp} for process in node.processes() for qp in process.get("qps", [])]


def await_queue_pairs(node, holds, sentence):
    deadline = time.monotonic() + node.settings.patience
    while not holds(qps := queue_pairs(node)):
        if time.monotonic() > deadline:
            raise Failure(f"{sentence}; the last status was {qps}")
        time.sleep(0.02)
    return qps


# Of ibv_rc_pingpong: messages of 4096 bytes, a CQ of so many receives and one SEND, made of a power of two.
MESSAGE, LEAST_CQE = 4096, 501


def shows_the_rest(node, pids):
    """CQs, MRs and counters of programs that exchange messages without end, in JSON and in the table."""
    before = {process["pid"]: process for process in node.processes()}
    for pid in pids:
        process = before[pid]
        expect([cq["capacity"] >= LEAST_CQE and not cq["overrun"] for cq in process["cqs"]] == [True],
               f"the CQs are {process['cqs']}")
        expect([(mr["length"], mr["access"]) for mr in process["mrs"]] == [(MESSAGE, ["LOCAL_WRITE"])],
               f"the MRs are {process['mrs']}")
        qp, mr = process["qps"][0], process["mrs"][0]
        expect(qp["send_cq"] == qp["recv_cq"] == process["cqs"][0]["index"], f"the queue pair's CQs: {qp}")
        expect(mr["lkey"] != mr["rkey"] and mr["iova"] == mr["address"], f"the MR: {mr}")
        counters = process["counters"]
        expect(counters["bytes_out"] == MESSAGE * counters["requests_out"], f"the counters: {counters}")
        expect(counters["bytes_in"] == MESSAGE * counters["requests_in"], f"the counters: {counters}")
    deadline = time.monotonic() + node.settings.patience
    while True:
        later = {process["pid"]: process["counters"] for process in node.processes()}
        if all(later[pid][way] > before[pid]["counters"][way] for pid in pids for way in ("requests_out", "requests_in",
                                                                                          "bytes_out", "bytes_in")):
            break
        expect(time.monotonic() < deadline, f"the counters stand: {later}")
    table = node.ended(node.start_beside(node.verbena, "status")).out
    for pid in pids:
        process = before[pid]
        lines = table[table.index(f"process {pid} "):].splitlines()[1:]
        qp, cq, mr = process["qps"][0], process["cqs"][0], process["mrs"][0]
        rows = {words[0]: dict(zip(words, lines[i + 1].split())) for i, line in enumerate(lines[:6])
                if (words := line.split()) and words[0] in ("QP", "CQ", "MR")}
        expect(rows["QP"]["QP"] == f"0x{qp['qpn']:06x}" and rows["QP"]["DEVICE"] == "verbena0", f"the table: {table}")
        expect((rows["CQ"]["CQ"], rows["CQ"]["SIZE"], rows["CQ"]["STATE"]) ==
               (str(cq["index"]), str(cq["capacity"]), "good"), f"the table: {table}")
        expect((rows["MR"]["LKEY"], rows["MR"]["RKEY"], rows["MR"]["ADDRESS"], rows["MR"]["LENGTH"], rows["MR"]["ACCESS"]) ==
               (f"0x{mr['lkey']:x}", f"0x{mr['rkey']:x}", f"0x{mr['address']:x}", str(MESSAGE), "LOCAL_WRITE"),
               f"the table: {table}")
        expect(int(re.search(rf"process {pid} .*?; (\d+) requests", table)[1]) >= process["counters"]["requests_out"],
               f"the table's counters: {table}")


@case("status.shows_a_running_pair")
def status_shows_pair(settings, as_user=None):
    with Node(settings, as_user=as_user) as node:
        port = ports.reserve()
        both = (PROGRAM, "-g", 1, "-e", "-n", FOREVER, "-p", port)
        server = node.start(*both, name="server")
        ports.wait_listening(port, server, settings.patience)
        client = node.start(*both, "127.0.0.1", name="client")
        pids = sorted((server.pid, client.pid))

        qps = await_queue_pairs(
            node, lambda qps: sorted(qp["pid"] for qp in qps if qp["state"] == "RTS") == pids,
            "no status with both queue pairs in RTS was seen")
        ends = {qp["pid"]: (qp["qpn"], qp["peer"]["qpn"]) for qp in qps}
        expect(ends[server.pid] == ends[client.pid][::-1], f"the queue pairs are not each other's peer: {ends}")
        whose = {qp["pid"]: qp["peer"]["pid"] for qp in qps}
        expect(whose == {server.pid: client.pid, client.pid: server.pid}, f"their processes are not each other's: {whose}")
        expect({qp["device"] for qp in qps} == {"verbena0"}, f"the queue pairs are not on verbena0: {qps}")
        shows_the_rest(node, pids)

        for side in (client, server):
            side.signal(signal.SIGKILL)
            side.wait(settings.patience)
        await_queue_pairs(node, lambda qps: not qps, "the killed processes' queue pairs stay in the status")


def ids_of(node):
    """{pid: its rdma_cm ids} as `verbena status` shows them."""
    return {process["pid"]: process["cm_ids"] for process in node.processes() if process.get("cm_ids")}


def await_ids(node, holds, sentence):
    deadline = time.monotonic() + node.settings.patience
    while not holds(ids := ids_of(node)):
        if time.monotonic() > deadline:
            raise Failure(f"{sentence}; the last status was {ids}")
        time.sleep(0.02)
    return ids


def states(ids):
    return sorted(each["state"] for each in ids)


@case("status.shows_rdma_cm", processors=1)
def status_shows_rdma_cm(settings):
    """A persistent server, a client that pings without end and a member of a group: what each has, its peer, its
    state."""
    address, port, group = "127.0.0.1", 7999, "224.10.10.11"
    listens = f"{address}:{port}"
    with Node(settings) as node:
        server = node.start("rping", "-s", "-P", "-a", address, "-p", port, name="rping (server)")
        ids = await_ids(node, lambda ids: states(ids.get(server.pid, [])) == ["listening"], "no listener was seen")
        listener = ids[server.pid][0]
        expect((listener["local"], listener["port_space"], listener["backlog"], listener["peer"])
               == (listens, "TCP", 3, None), f"this is not rping's listener: {listener}")

        client = node.start("rping", "-c", "-a", address, "-p", port, name="rping (client)")
        ids = await_ids(node, lambda ids: states(ids.get(server.pid, [])) == ["connected", "listening"]
                        and states(ids.get(client.pid, [])) == ["connected"], "no connection was seen")
        here, = ids[client.pid]
        there, = (each for each in ids[server.pid] if each["state"] == "connected")
        expect(here["remote"] == listens and there["local"] == listens, f"not to that port: {here}, {there}")
        expect(here["local"] == there["remote"], f"not each other's addresses: {here}, {there}")
        expect(here["peer"]["pid"] == server.pid and there["peer"]["pid"] == client.pid,
               f"not each other's peer: {here}, {there}")
        qps = {qp["pid"]: (qp["qpn"], qp["peer"]["qpn"]) for qp in queue_pairs(node)}
        expect(qps == {client.pid: (here["qpn"], there["qpn"]), server.pid: (there["qpn"], here["qpn"])},
               f"the ids' queue pairs are {here['qpn']} and {there['qpn']}, but {qps} are there")

        member = node.start("mckey", "-m", group, "-b", address, name="mckey")
        await_ids(node, lambda _: [(process["pid"], joined["mgid"]) for process in node.processes()
                                   for joined in process.get("cm_groups", [])] == [(member.pid, f"::ffff:{group}")],
                  "the group was not seen")

        text = node.run(node.verbena, "status", name="verbena status (table)").out
        for row in (f"TCP +RC +listening +{listens} .* 3$", f"TCP +RC +connected +{listens} .* {client.pid} \\(rping\\) ",
                    f"TCP +RC +connected +{here['local']} +{listens} +{server.pid} \\(rping\\) ", f"::ffff:{group} .* full$"):
            expect(re.search(row, text, re.MULTILINE), f"no row /{row}/ in the table:\n{text}")

        client.signal(signal.SIGKILL)
        client.wait(settings.patience)
        await_ids(node, lambda ids: client.pid not in ids and "connected" not in states(ids.get(server.pid, [])),
                  "the killed client's connection stays in the status")


@case("nothing_left_behind", quick=True, processors=1)
def nothing_left_behind(settings):
    """When all have ended, no slot is taken and no folder of one is left."""
    with Node(settings) as node:
        run_pair(node, PROGRAM, both=("-g", 1, "-n", 100))
        expect(not node.processes(), "the status still shows processes")
        left = [os.path.join(folder, name) for folder, names, _ in os.walk(node.folder)
                if os.path.basename(folder) == "slots" for name in names]
        expect(not left, f"left behind: {left}")


@case("exit_status", quick=True, processors=1)
def exit_status(settings):
    """`verbena run` ends with the program's status."""
    with Node(settings) as node:
        node.run("sh", "-c", "exit 0")
        node.run("sh", "-c", "exit 3", status=3)
        node.run("sh", "-c", "kill -TERM $$", status=-signal.SIGTERM)


def installed_profile(settings, prefix):
    """Device profiles and the conformance suite are installed, too."""
    with Node(settings, ["--profile", "minimal"], verbena=os.path.join(prefix, "bin", "verbena")) as node:
        most = re.search(r"max_srq:\s+(\d+)", node.run("ibv_devinfo", "-v").out)
        expect(most is not None and int(most[1]) == 0, "the profile `minimal` is not that of the prefix")
        suite = os.path.join(prefix, "bin", "verbs-conformance")
        if os.path.exists(os.path.join(settings.build, "bin", "verbs-conformance")):
            expect("pd" in node.run(suite, "--list").out, "the installed verbs-conformance does not say what it can")


@case("without_root", quick=True)
def without_root(settings):
    """Installed, and run as `nobody`: neither root nor the build folder is needed."""
    if os.getuid() != 0:
        raise Skip("not root: all other cases already run without it")
    nobody = pwd.getpwnam("nobody")
    become = ("setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups", "--no-new-privs",
              "--bounding-set=-all", "--inh-caps=-all")
    prefix = tempfile.mkdtemp(prefix="vp.", dir="/tmp")
    try:
        os.chmod(prefix, 0o755)
        done = subprocess.run(["cmake", "--install", settings.build, "--prefix", prefix], capture_output=True, text=True)
        expect(done.returncode == 0, f"cmake --install failed: {done.stdout}{done.stderr}")
        with Node(settings, as_user=become, verbena=os.path.join(prefix, "bin", "verbena")) as node:
            node.give_to(nobody.pw_uid, nobody.pw_gid)
            who = node.run("id", "-u")
            expect(int(who.out) == nobody.pw_uid, "the program does not run as nobody")
            node.run("ibv_devinfo", "-v")
            for side in run_pair(node, PROGRAM, both=("-g", 1, "-n", 1000, "-c")):
                check(side, 4096, 1000)
            run_pair(node, "ib_write_bw", both=("-F", "-n", 1000))
            run_pair(node, "ib_read_lat", both=("-F", "-n", 1000), harmless=HARMLESS)
        installed_profile(settings, prefix)
    finally:
        shutil.rmtree(prefix, ignore_errors=True)
