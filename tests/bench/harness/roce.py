# SPDX-License-Identifier: BSD-2-Clause
"""Measures of nodes that speak RoCE v2 (`verbena run --roce`), and of plain sockets over the same link (link.py)."""
import contextlib

from . import parse, programs
from .link import CLIENT, SERVER, Link


def _over_link(read, loss, server, client):
    """`server(bench, port)` and `client(bench, port)` are commands. CPU time counts both, from their start to their end."""
    def take(bench):
        with contextlib.closing(Link(loss)) as link:
            port, before = programs.free_port(), programs.cpu_seconds()
            figures = read(programs.pair([*link.enter(0), *server(bench, port)], [*link.enter(1), *client(bench, port)], port,
                                         bench.two_cpus(), server_pid=link.pids[0]))
            figures["cpu_seconds"] = programs.cpu_seconds() - before
        return figures
    return take


def perftest(program, read, *options, size, count, loss=None):
    def words(bench, port):
        return [programs.find(program), "-F", "-x", "1", "-p", str(port), "-s", str(size), "-n", str(bench.count(count)),
                *options]

    def node(bench, address, *command):
        return [bench.built("verbena"), "run", "--roce", address, "--", *command]

    take = _over_link(read, loss, lambda bench, port: node(bench, SERVER, *words(bench, port)),
                      lambda bench, port: node(bench, CLIENT, *words(bench, port), SERVER))

    def with_cpu(bench):
        figures = take(bench)
        figures["cpu_seconds_per_gbyte"] = figures["cpu_seconds"] / (size * bench.count(count) / 1e9)
        return figures
    return with_cpu


def bandwidth(mtu, *options, program="ib_write_bw", size=65536, count=20000, loss=None):
    return perftest(program, parse.perftest_bandwidth, "--report_gbits", "-N", "-m", str(mtu), *options, size=size,
                    count=count, loss=loss)


def latency(program, size=8, count=20000):
    return perftest(program, parse.perftest_latency, "-H", size=size, count=count)


def sockets(measure, size, count):
    def words(bench, port):
        return [bench.built("verbena_bench_socket_pair"), measure, "--port", str(port), "--size", str(size), "--count",
                str(bench.count(count))]

    take = _over_link(parse.own_json, None, words, lambda bench, port: [*words(bench, port), SERVER])

    def with_cpu(bench):
        figures = take(bench)
        if "gbytes" in figures:
            figures["cpu_seconds_per_gbyte"] = figures["cpu_seconds"] / figures["gbytes"]
        return figures
    return with_cpu


def idle(address="127.0.0.2", qps=1000, depth=16):
    def take(bench):
        return parse.own_json(programs.alone([bench.built("verbena"), "run", "--roce", address, "--",
                                              bench.built("verbena_bench_idle_qps"), "--qps", str(qps), "--depth",
                                              str(depth)]))
    return take


ROCE_MEASURES = {
    "roce write_bw, MTU 4096": (bandwidth(4096), "ib_write_bw -s 65536 -m 4096 over RoCE"),
    "roce write_bw, MTU 1024": (bandwidth(1024), "ib_write_bw -s 65536 -m 1024 over RoCE"),
    "roce send_bw -e": (bandwidth(4096, "-e", program="ib_send_bw"), "ib_send_bw -s 65536 -m 4096 -e over RoCE"),
    "link tcp_stream": (sockets("tcp_stream", 65536, 40000), "one TCP stream over the same link, 64 KiB"),
    "roce send_lat 8": (latency("ib_send_lat"), "ib_send_lat -s 8 over RoCE"),
    "roce write_lat 8": (latency("ib_write_lat"), "ib_write_lat -s 8 over RoCE"),
    "link udp_ping_pong": (sockets("udp_ping_pong", 8, 50000), "UDP datagrams of 8 B over the same link, both polling"),
    "roce send_bw 64": (perftest("ib_send_bw", parse.perftest_bandwidth, "--report_gbits", "-N", size=64, count=1000000),
                        "ib_send_bw -s 64 over RoCE"),
    "roce write_bw, one by one": (bandwidth(4096, loss=0, count=10000), "the same without loss, packets one by one"),
    "roce write_bw, 1 % lost": (bandwidth(4096, loss=1, count=10000), "ib_write_bw -s 65536 -m 4096, 1 packet in 100 lost"),
    "roce idle_qps": (idle(), "1,000 connected RC QPs of depth 16, process asleep for 2 s, RoCE"),
}
