# SPDX-License-Identifier: BSD-2-Clause
"""The measures: a name, a function that takes the figures once, and a description.

`Bench` carries what a run needs to know; a measure is a function of it that returns {statistic: value} or raises
programs.Unavailable.
"""
import json
import os
import tempfile
import time

from . import parse, programs
from .roce import ROCE_MEASURES


class Bench:
    """One run of the benchmark: where the build lies, the two CPUs, how much work each measure does."""

    def __init__(self, build, cpus, scale=1.0):
        self.build = build
        self.cpus = cpus
        self.scale = scale  # fraction of the full number of operations

    def count(self, full):
        return max(int(full * self.scale), 1000)

    def built(self, name, needs=""):
        """The path of a program of ours. `needs`: the package without which it is not built."""
        path = os.path.join(self.build, "bin", name)
        if not os.access(path, os.X_OK):
            raise programs.Unavailable("%s is not built%s" % (name, needs and ": it needs %s (%s)" % (needs, programs.INSTALL)))
        return path

    def two_cpus(self):
        if len(self.cpus) < 2:
            raise programs.Unavailable("needs two CPUs, this process may use one")
        return self.cpus

    def on_verbena(self, *command):
        return [self.built("verbena"), "run", "--", *command]

    def on_node(self, address, *command):
        """The same on a node that others can reach at the address."""
        return [self.built("verbena"), "run", "--ip", address, "--", *command]


def _perftest(program, read, *options, **shape):
    size, full = shape["size"], shape["count"]

    def take(bench):
        port = programs.free_port()
        # -F: no warning about CPU frequency on standard output.
        command = bench.on_verbena(programs.find(program), "-F", "-p", str(port), "-s", str(size), "-n",
                                   str(bench.count(full)), *options)
        return read(programs.pair(command, command + ["127.0.0.1"], port, bench.two_cpus()))
    return take


def perftest_latency(program, size, count=50000):
    return _perftest(program, parse.perftest_latency, "-H", size=size, count=count)


def perftest_bandwidth(program, size, count):
    # -N: no clock reading per message; the average does not need it.
    return _perftest(program, parse.perftest_bandwidth, "--report_gbits", "-N", size=size, count=count)


def in_shared_memory(program, read, *options, **shape):
    """As _perftest, with the buffers of both ends in files of /dev/shm that they map MAP_SHARED: 64 MiB each, of which
    perftest uses what it needs."""
    size, full = shape["size"], shape["count"]

    def take(bench):
        port = programs.free_port()
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as server, tempfile.NamedTemporaryFile(dir="/dev/shm") as client:
            for end in (server, client):
                end.truncate(64 << 20)
            words = [programs.find(program), "-F", "-p", str(port), "-s", str(size), "-n", str(bench.count(full)), *options]
            return read(programs.pair(bench.on_verbena(*words, "--mmap", server.name),
                                      bench.on_verbena(*words, "--mmap", client.name, "127.0.0.1"), port,
                                      bench.two_cpus()))
    return take


def on_shared_heap(program, read, *options, **shape):
    """As _perftest, both ends under --shared-heap."""
    size, full = shape["size"], shape["count"]

    def take(bench):
        port = programs.free_port()
        command = [bench.built("verbena"), "run", "--shared-heap", "--", programs.find(program), "-F", "-p", str(port),
                   "-s", str(size), "-n", str(bench.count(full)), *options]
        return read(programs.pair(command, command + ["127.0.0.1"], port, bench.two_cpus()))
    return take


# Two nodes on this machine, each with an address of its own; the default key is that of the user.
SERVER_ADDRESS, CLIENT_ADDRESS = "127.0.0.2", "127.0.0.3"


def between_nodes(program, read, *options, **shape):
    """As _perftest, between two nodes over TCP."""
    size, full = shape["size"], shape["count"]

    def take(bench):
        port = programs.free_port()
        words = [programs.find(program), "-F", "-p", str(port), "-s", str(size), "-n", str(bench.count(full)), *options]
        return read(programs.pair(bench.on_node(SERVER_ADDRESS, *words),
                                  bench.on_node(CLIENT_ADDRESS, *words, SERVER_ADDRESS), port, bench.two_cpus()))
    return take


def fi_pingpong(provider, size, count=200000):
    def take(bench):
        port = programs.free_port()
        command = [programs.find("fi_pingpong"), "-p", provider, "-e", "rdm", "-S", str(size), "-I",
                   str(bench.count(count))]
        return parse.fi_pingpong(programs.pair(command + ["-B", str(port)],
                                               command + ["-P", str(port), "127.0.0.1"], port, bench.two_cpus()))
    return take


def libfabric_rate(provider, size, count):
    def take(bench):
        port = programs.free_port()
        command = [bench.built("verbena_bench_libfabric_rate", needs="libfabric-dev"), "--provider", provider, "--port",
                   str(port), "--size", str(size), "--count", str(bench.count(count))]
        return parse.own_json(programs.pair(command, command + ["127.0.0.1"], port, bench.two_cpus()))
    return take


def ucx_perftest(test, size, count, transports="posix,self"):
    def take(bench):
        port = programs.free_port()
        program = [programs.find("ucx_perftest"), "-p", str(port)]
        client = program + ["127.0.0.1", "-f", "-t", test, "-s", str(size), "-n", str(bench.count(count))]
        # UCX_WARN_UNUSED_ENV_VARS: keep the output to the figures.
        environment = {"UCX_TLS": transports, "UCX_WARN_UNUSED_ENV_VARS": "n"}
        return parse.ucx_perftest(programs.pair(program, client, port, bench.two_cpus(), environment))
    return take


def ucx_on_verbena(test, size, count, *options):
    """The same program over verbena0: UCX's transport rc_verbs."""
    def take(bench):
        port = programs.free_port()
        program = [bench.built("verbena"), "run", *options, "--", programs.find("ucx_perftest"), "-p", str(port)]
        client = program + ["127.0.0.1", "-f", "-t", test, "-s", str(size), "-n", str(bench.count(count))]
        environment = {"UCX_TLS": "rc,self", "UCX_NET_DEVICES": "verbena0:1", "UCX_WARN_UNUSED_ENV_VARS": "n"}
        return parse.ucx_perftest(programs.pair(program, client, port, bench.two_cpus(), environment))
    return take


def micro(measure, size=8, count=100000):
    def take(bench):
        cpus = bench.two_cpus()
        return parse.own_json(programs.alone([
            bench.built("verbena_bench_micro"), measure, "--size", str(size), "--count", str(bench.count(count)),
            "--cpus", "%d,%d" % (cpus[0], cpus[1])]))
    return take


def idle_qps(qps=1000, depth=16, address=None):
    def take(bench):
        command = [bench.built("verbena_bench_idle_qps"), "--qps", str(qps), "--depth", str(depth)]
        return parse.own_json(programs.alone(bench.on_node(address, *command) if address else
                                             bench.on_verbena(*command)))
    return take


def scale(measure, number=None, options=()):
    """Objects in numbers, and single calls, in one process."""
    def take(bench):
        return parse.own_json(programs.alone([
            bench.built("verbena"), "run", *options, "--", bench.built("verbena_bench_scale"), measure,
            *([] if number is None else [str(number)])]))
    return take


def start(*command):
    """The least of some starts of a program, from fork to exit."""
    def take(bench):
        words = [bench.built(word) if word == "verbena" else word for word in command]
        taken = []
        for _ in range(5):
            begin = time.monotonic()
            programs.alone(words)
            taken.append(time.monotonic() - begin)
        return {"ms": 1000 * min(taken)}
    return take


def many_qps_latency(qps, used=None, count=50000, within_a_node=False):
    """Half round trips between two processes, of two nodes or of one, that are connected by so many QPs. Message i is on
    QP i mod `used` (default: all)."""
    def take(bench):
        port = programs.free_port()
        command = [bench.built("verbena_bench_many_qps_latency"), "--port", str(port), "--qps", str(qps), "--used",
                   str(used or qps), "--count", str(bench.count(count))]
        if within_a_node:
            return parse.own_json(programs.pair(bench.on_verbena(*command), bench.on_verbena(*command, "127.0.0.1"), port,
                                                bench.two_cpus()))
        return parse.own_json(programs.pair(bench.on_node(SERVER_ADDRESS, *command),
                                            bench.on_node(CLIENT_ADDRESS, *command, SERVER_ADDRESS), port,
                                            bench.two_cpus()))
    return take


PAIRS = 8


def pairs_latency(pairs, at_once, count=50000):
    """So many pairs of processes that exchange messages of 8 B within a node, at once or one after another. Seconds in
    all."""
    def take(bench):
        cpus = bench.two_cpus()
        sums = {"seconds": 0.0, "cpu_seconds": 0.0}
        for _ in range(1 if at_once else pairs):
            ports = set()
            while len(ports) < (pairs if at_once else 1):
                ports.add(programs.free_port())
            command = [bench.on_verbena(bench.built("verbena_bench_many_qps_latency"), "--port", str(port), "--count",
                                        str(bench.count(count))) for port in ports]
            taken = programs.pairs(command, [each + ["127.0.0.1"] for each in command], ports, cpus)
            sums = {name: sums[name] + taken[name] for name in sums}
        return sums
    return take


CONNECTIONS = 1000
_CM_NODE = ("--node", "bench-connections")  # where no other program listens


def cmtime(connections=CONNECTIONS):
    def take(bench):
        verbena = bench.built("verbena")
        program = [verbena, "run", *_CM_NODE, "--", programs.find("cmtime")]

        def listens():
            status = json.loads(programs.alone([verbena, "status", "--json", *_CM_NODE], must_succeed=False) or "{}")
            return any(cm_id["state"] == "listening" for node in status.get("nodes", [])
                       for process in node.get("processes", []) for cm_id in process.get("cm_ids", []))
        # 127.0.0.1 is the device's as well; -b: binding is a step of its own.
        client = program + ["-s", "127.0.0.1", "-b", "127.0.0.1", "-c", str(connections)]
        return parse.cmtime(programs.served(program, client, listens, bench.two_cpus()), connections)
    return take


SIZES = ((4096, "4 KiB"), (1 << 20, "1 MiB"), (1 << 30, "1 GiB"))

# name: (function, description)
MEASURES = {
    "ib_send_lat 8": (perftest_latency("ib_send_lat", 8), "ib_send_lat -s 8"),
    "ib_send_lat 4096": (perftest_latency("ib_send_lat", 4096), "ib_send_lat -s 4096"),
    "ib_write_lat 8": (perftest_latency("ib_write_lat", 8), "ib_write_lat -s 8"),
    "ib_write_lat 4096": (perftest_latency("ib_write_lat", 4096), "ib_write_lat -s 4096"),
    "ib_read_lat 8": (perftest_latency("ib_read_lat", 8), "ib_read_lat -s 8"),
    "ib_read_lat 4096": (perftest_latency("ib_read_lat", 4096), "ib_read_lat -s 4096"),
    "ib_write_bw 65536": (perftest_bandwidth("ib_write_bw", 65536, 40000), "ib_write_bw -s 65536"),
    "ib_write_bw 262144": (perftest_bandwidth("ib_write_bw", 262144, 12000), "ib_write_bw -s 262144"),
    "ib_write_bw 1048576": (perftest_bandwidth("ib_write_bw", 1048576, 4000), "ib_write_bw -s 1048576"),
    "shared ib_write_lat 8": (in_shared_memory("ib_write_lat", parse.perftest_latency, "-H", size=8, count=500000),
                              "ib_write_lat -s 8 --mmap"),
    "shared ib_read_lat 8": (in_shared_memory("ib_read_lat", parse.perftest_latency, "-H", size=8, count=500000),
                             "ib_read_lat -s 8 --mmap"),
    "shared ib_atomic_lat": (in_shared_memory("ib_atomic_lat", parse.perftest_latency, "-H", "-A", "FETCH_AND_ADD", size=8,
                                              count=500000), "ib_atomic_lat -A FETCH_AND_ADD --mmap"),
    "shared ib_write_bw 65536": (in_shared_memory("ib_write_bw", parse.perftest_bandwidth, "--report_gbits", "-N",
                                                  size=65536, count=200000), "ib_write_bw -s 65536 --mmap"),
    "shared ib_write_bw 1048576": (in_shared_memory("ib_write_bw", parse.perftest_bandwidth, "--report_gbits", "-N",
                                                    size=1048576, count=10000), "ib_write_bw -s 1048576 --mmap"),
    "heap ib_write_lat 8": (on_shared_heap("ib_write_lat", parse.perftest_latency, "-H", size=8, count=500000),
                            "ib_write_lat -s 8, --shared-heap"),
    "heap ib_read_lat 8": (on_shared_heap("ib_read_lat", parse.perftest_latency, "-H", size=8, count=500000),
                           "ib_read_lat -s 8, --shared-heap"),
    "heap ib_atomic_lat": (on_shared_heap("ib_atomic_lat", parse.perftest_latency, "-H", "-A", "FETCH_AND_ADD", size=8,
                                          count=500000), "ib_atomic_lat -A FETCH_AND_ADD, --shared-heap"),
    "heap ib_atomic_lat cswap": (on_shared_heap("ib_atomic_lat", parse.perftest_latency, "-H", "-A", "CMP_AND_SWAP", size=8,
                                                count=500000), "ib_atomic_lat -A CMP_AND_SWAP, --shared-heap"),
    "heap ib_send_lat 4096": (on_shared_heap("ib_send_lat", parse.perftest_latency, "-H", size=4096, count=200000),
                              "ib_send_lat -s 4096, --shared-heap"),
    "heap ib_write_bw 65536": (on_shared_heap("ib_write_bw", parse.perftest_bandwidth, "--report_gbits", "-N",
                                              size=65536, count=200000), "ib_write_bw -s 65536, --shared-heap"),
    "heap ib_write_bw 262144": (on_shared_heap("ib_write_bw", parse.perftest_bandwidth, "--report_gbits", "-N",
                                               size=262144, count=40000), "ib_write_bw -s 262144, --shared-heap"),
    "heap ib_write_bw 1048576": (on_shared_heap("ib_write_bw", parse.perftest_bandwidth, "--report_gbits", "-N",
                                                size=1048576, count=10000), "ib_write_bw -s 1048576, --shared-heap"),
    "heap ib_send_bw 65536": (on_shared_heap("ib_send_bw", parse.perftest_bandwidth, "--report_gbits", "-N",
                                             size=65536, count=100000), "ib_send_bw -s 65536, --shared-heap"),
    "heap ib_send_bw 1048576": (on_shared_heap("ib_send_bw", parse.perftest_bandwidth, "--report_gbits", "-N",
                                               size=1048576, count=10000), "ib_send_bw -s 1048576, --shared-heap"),
    "ib_send_bw 64": (perftest_bandwidth("ib_send_bw", 64, 2000000), "ib_send_bw -s 64"),
    "libfabric shm 8": (fi_pingpong("shm", 8), "fi_pingpong -p shm -e rdm, 8 B"),
    "libfabric shm 4096": (fi_pingpong("shm", 4096), "fi_pingpong -p shm -e rdm, 4 KiB"),
    "ucx tag_lat 8": (ucx_perftest("tag_lat", 8, 500000), "ucx_perftest tag_lat (posix), 8 B"),
    "ucx tag_lat 4096": (ucx_perftest("tag_lat", 4096, 200000), "ucx_perftest tag_lat (posix), 4 KiB"),
    "ucx put_lat 8": (ucx_perftest("ucp_put_lat", 8, 500000), "ucx_perftest ucp_put_lat (posix), 8 B"),
    "ucx fadd 8": (ucx_perftest("ucp_fadd", 8, 500000), "ucx_perftest ucp_fadd (posix), 8 B"),
    "ucx cswap 8": (ucx_perftest("ucp_cswap", 8, 500000), "ucx_perftest ucp_cswap (posix), 8 B"),
    "ucx tag_bw 65536": (ucx_perftest("tag_bw", 65536, 100000), "ucx_perftest tag_bw (posix), 64 KiB"),
    "ucx tag_bw 1048576": (ucx_perftest("tag_bw", 1048576, 10000), "ucx_perftest tag_bw (posix), 1 MiB"),
    "ucx tag_bw 64": (ucx_perftest("tag_bw", 64, 2000000), "ucx_perftest tag_bw (posix), 64 B"),
    "ucx am_bw 64": (ucx_perftest("ucp_am_bw", 64, 2000000), "ucx_perftest ucp_am_bw (posix), 64 B"),
    "verbena tag_lat 8": (ucx_on_verbena("tag_lat", 8, 500000), "ucx_perftest tag_lat (rc, verbena0), 8 B"),
    "verbena tag_bw 1048576": (ucx_on_verbena("tag_bw", 1048576, 10000), "ucx_perftest tag_bw (rc, verbena0), 1 MiB"),
    "heap tag_lat 8": (ucx_on_verbena("tag_lat", 8, 500000, "--shared-heap"),
                       "ucx_perftest tag_lat (rc, verbena0 --shared-heap), 8 B"),
    "heap tag_bw 1048576": (ucx_on_verbena("tag_bw", 1048576, 10000, "--shared-heap"),
                            "ucx_perftest tag_bw (rc, verbena0 --shared-heap), 1 MiB"),
    "hand_over": (micro("hand_over", count=2000000), "shared-memory hand-over, both polling"),
    "process_vm_hand_over": (micro("process_vm_hand_over"), "process_vm_writev hand-over, both polling"),
    "mem_hand_over": (micro("mem_hand_over"), "pwrite to /proc/pid/mem hand-over, both polling"),
    "mem_pwrite 8": (micro("mem_pwrite", 8), "pwrite to a passed /proc/self/mem, 8 B"),
    "mem_pwrite 4096": (micro("mem_pwrite", 4096), "pwrite to a passed /proc/self/mem, 4 KiB"),
    "process_vm_writev 8": (micro("process_vm_writev", 8), "process_vm_writev, one call, 8 B"),
    "process_vm_writev 4096": (micro("process_vm_writev", 4096), "process_vm_writev, one call, 4 KiB"),
    "process_vm_writev 65536": (micro("process_vm_writev", 65536, 20000), "process_vm_writev, 64 KiB"),
    "process_vm_writev 262144": (micro("process_vm_writev", 262144, 8000), "process_vm_writev, 256 KiB"),
    "process_vm_writev 1048576": (micro("process_vm_writev", 1048576, 2000), "process_vm_writev, 1 MiB"),
    "process_vm_readv 8": (micro("process_vm_readv", 8), "process_vm_readv, one call, 8 B"),
    "process_vm_readv 4096": (micro("process_vm_readv", 4096), "process_vm_readv, one call, 4 KiB"),
    "memcpy 65536": (micro("memcpy", 65536, 100000), "memcpy, 64 KiB"),
    "memcpy 262144": (micro("memcpy", 262144, 20000), "memcpy, 256 KiB"),
    "memcpy 1048576": (micro("memcpy", 1048576, 4000), "memcpy, 1 MiB"),
    "idle_qps": (idle_qps(), "1,000 connected RC QPs of depth 16, process asleep for 2 s"),
    "network idle_qps": (idle_qps(address=SERVER_ADDRESS), "the same, with the network open"),
    "scale queue_pairs": (scale("queue_pairs"), "10,000 RC QPs of depth 16"),
    "scale completion_queues": (scale("completion_queues"), "10,000 CQs of 16 entries"),
    "scale regions": (scale("regions"), "100,000 MRs of 4 KiB"),
    **{"scale registration %d" % size: (scale("registration", size), "ibv_reg_mr, %s" % name) for size, name in SIZES},
    **{"heap registration %d" % size: (scale("registration", size, ("--shared-heap",)), "ibv_reg_mr, %s, --shared-heap" % name)
       for size, name in SIZES},
    "scale poll_empty": (scale("poll_empty"), "ibv_poll_cq of an empty CQ"),
    "scale post_list": (scale("post_list"), "ibv_post_send, SENDs of 8 B within a process"),
    "scale processes": (scale("processes"), "1,000 processes open the device"),
    "start run": (start("verbena", "run", "--", "true"), "verbena run -- true"),
    "start alone": (start("true"), "true"),
    "cmtime": (cmtime(), "cmtime -c 1000"),
    "network send_lat 8": (between_nodes("ib_send_lat", parse.perftest_latency, "-H", size=8, count=50000),
                           "ib_send_lat -s 8 between nodes"),
    "network write_bw 65536": (between_nodes("ib_write_bw", parse.perftest_bandwidth, "--report_gbits", "-N", size=65536,
                                             count=40000), "ib_write_bw -s 65536 between nodes"),
    "network write_bw 1048576": (between_nodes("ib_write_bw", parse.perftest_bandwidth, "--report_gbits", "-N",
                                               size=1048576, count=4000), "ib_write_bw -s 1048576 between nodes"),
    "network send_bw 64": (between_nodes("ib_send_bw", parse.perftest_bandwidth, "--report_gbits", "-N", size=64,
                                         count=1000000), "ib_send_bw -s 64 between nodes"),
    # perftest 4.5 signals once in 20 messages then, and counts every completion as so many. Where they do not divide
    # 1,000, the last completion of a queue pair counts for more than was left, and it stops polling before the others
    # are done (run_iter_bw(), perftest_resources.c).
    "network send_bw 64, 1 QP": (between_nodes("ib_send_bw", parse.perftest_bandwidth, "--report_gbits", "-N", "-t", "20",
                                               "-r", "20", size=64, count=400000), "ib_send_bw -s 64 -t 20, 1 QP"),
    "network send_bw 64, 1000 QPs": (
        between_nodes("ib_send_bw", parse.perftest_bandwidth, "--report_gbits", "-N", "-t", "20", "-r", "20", "-q", "1000",
                      size=64, count=1000), "ib_send_bw -s 64 -t 20 -q 1000"),
    "network latency, 1 QP": (many_qps_latency(1), "the same, 1 QP"),
    "network latency, one of 1000 QPs": (many_qps_latency(1000, used=1), "SEND 8 B there and back, 1,000 QPs connected"),
    "network latency, 1000 QPs": (many_qps_latency(1000), "SEND 8 B there and back, round robin over 1,000 QPs"),
    "latency, 1 QP": (many_qps_latency(1, count=200000, within_a_node=True), "the same, 1 QP"),
    "latency, 1000 QPs": (many_qps_latency(1000, count=200000, within_a_node=True),
                          "SEND 8 B there and back, round robin over 1,000 QPs"),
    "8 pairs": (pairs_latency(PAIRS, at_once=True), "8 pairs of processes at once, SEND 8 B there and back"),
    "8 pairs in turn": (pairs_latency(PAIRS, at_once=False), "the same, one pair after another"),
    "libfabric tcp 8": (fi_pingpong("tcp", 8, 50000), "fi_pingpong -p tcp -e rdm, 8 B"),
    "libfabric tcp rate 64": (libfabric_rate("tcp", 64, 500000), "fi_inject over tcp, rdm, 64 B"),
    "ucx tcp tag_bw 64": (ucx_perftest("tag_bw", 64, 1000000, "tcp,self"), "ucx_perftest tag_bw (tcp), 64 B"),
    "tcp_hand_over 8": (micro("tcp_hand_over", 8, 50000), "one TCP connection, 8 B, both polling"),
    "tcp_stream 65536": (micro("tcp_stream", 65536, 40000), "one TCP stream, 64 KiB"),
    "tcp_stream 1048576": (micro("tcp_stream", 1048576, 4000), "one TCP stream, 1 MiB"),
    **ROCE_MEASURES,
}
