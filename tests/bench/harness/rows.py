# SPDX-License-Identifier: BSD-2-Clause
"""The rows of the table and how they are judged: DESIGN, "Figures to reach".

A ratio is subject / yardstick, each the median over the rounds. Subject and yardstick of a row are the same kind of
statistic: a mean beside a mean where the yardstick has only means, a median beside a median otherwise.
"""
import statistics
from dataclasses import dataclass
from typing import Optional

from .measures import MEASURES, SIZES
from .parse import CMTIME_STEPS


@dataclass(frozen=True)
class Goal:
    relation: str  # "<=", "<" or ">="
    limit: float
    stage: str  # "first" is judged; "then" is the next step of the design and printed beside

    def met(self, value):
        return {"<=": value <= self.limit, "<": value < self.limit, ">=": value >= self.limit}[self.relation]


@dataclass(frozen=True)
class Row:
    work: str
    unit: str
    subject: str
    subject_statistic: str
    yardstick: Optional[str]  # None: the goal is for the figure itself
    yardstick_statistic: Optional[str]
    goal: Optional[Goal]  # None: printed for orientation
    note: str = ""


def _first(relation, limit):
    return Goal(relation, limit, "first")


def _then(relation, limit):
    return Goal(relation, limit, "then")


def _heap_rows():
    """verbena run --shared-heap, beside what UCX and memcpy make of memory that both processes map."""
    for work, subject, yardstick in (("write latency 8 B", "heap ib_write_lat 8", "ucx put_lat 8"),
                                     ("read latency 8 B", "heap ib_read_lat 8", "ucx put_lat 8"),
                                     ("fetch-and-add 8 B", "heap ib_atomic_lat", "ucx fadd 8"),
                                     ("compare-and-swap 8 B", "heap ib_atomic_lat cswap", "ucx cswap 8")):
        for goal in (_first("<=", 2.0), _then("<=", 1.2)):
            yield Row(work, "us", subject, "t_typical", yardstick, "50%ile", goal, "shared heap")
    for goal in (_first("<=", 1.0), _then("<=", 0.7)):
        yield Row("send latency 4 KiB", "us", "heap ib_send_lat 4096", "t_typical", "ucx tag_lat 4096", "50%ile", goal,
                  "shared heap")
    for size, name in ((65536, "64 KiB"), (262144, "256 KiB"), (1048576, "1 MiB")):
        for goal in (_first(">=", 0.8), _then(">=", 0.95)):
            yield Row("write bandwidth " + name, "GB/s", "heap ib_write_bw %d" % size, "BW average", "memcpy %d" % size,
                      "gbytes_per_second", goal, "shared heap")
    for size, name in ((65536, "64 KiB"), (1048576, "1 MiB")):
        yield Row("send bandwidth " + name, "GB/s", "heap ib_send_bw %d" % size, "BW average", "ucx tag_bw %d" % size,
                  "bandwidth", _first(">=", 1.5), "shared heap")
        yield Row("send bandwidth " + name, "GB/s", "heap ib_send_bw %d" % size, "BW average", "memcpy %d" % size,
                  "gbytes_per_second", _then(">=", 0.9), "shared heap")


def _ucx_rows():
    """UCX over verbena0 beside UCX over its own shared memory."""
    for prefix, note in (("verbena", ""), ("heap", "shared heap")):
        for goal in (_first("<=", 0.9), _then("<=", 0.8)):
            yield Row("UCX tag latency 8 B", "us", prefix + " tag_lat 8", "50%ile", "ucx tag_lat 8", "50%ile", goal, note)
        for goal in (_first(">=", 0.8), _then(">=", 1.0)):
            yield Row("UCX tag bandwidth 1 MiB", "GB/s", prefix + " tag_bw 1048576", "bandwidth", "ucx tag_bw 1048576",
                      "bandwidth", goal, note)


def _bandwidth_rows():
    for size, name in ((65536, "64 KiB"), (262144, "256 KiB"), (1048576, "1 MiB")):
        for yardstick, goal in (("process_vm_writev", _first(">=", 0.95)), ("memcpy", _then(">=", 0.8))):
            yield Row("write bandwidth " + name, "GB/s", "ib_write_bw %d" % size, "BW average",
                      "%s %d" % (yardstick, size), "gbytes_per_second", goal,
                      "shared heap" if yardstick == "memcpy" else "")


def _scale_rows():
    """Many objects, and calls that move nothing."""
    for work, subject in (("10,000 QPs", "scale queue_pairs"), ("10,000 CQs", "scale completion_queues"),
                          ("100,000 MRs", "scale regions")):
        for step in ("create", "destroy"):
            yield Row("%s: %s" % (work, step), "us", subject, step + "_us", None, None, None, "each")
        yield Row(work + ": memory", "B", subject, "bytes_each", None, None, None, "each")
    for size, name in SIZES:
        yield Row("registering %s, first" % name, "us", "scale registration %d" % size, "first_us", None, None, None)
        yield Row("registering %s, again" % name, "us", "scale registration %d" % size, "again_us", None, None, None)
        for which in ("first", "again"):
            yield Row("registering %s, %s" % (name, which), "us", "heap registration %d" % size, which + "_us",
                      "scale registration %d" % size, which + "_us", None, "shared heap")
    yield Row("polling an empty CQ", "us", "scale poll_empty", "poll_us", None, None, None)
    yield Row("posting a list of 32", "us", "scale post_list", "list_us", "scale post_list", "single_us", None,
              "per request; beside it one by one")
    yield Row("opening the device", "us", "scale processes", "last_us", "scale processes", "first_us", None,
              "1,000th process of the node; beside it the first")
    yield Row("start of a process", "ms", "start run", "ms", "start alone", "ms", None)


def _roce_rows():
    """Two nodes with RoCE v2 beside plain sockets over the same link."""
    for mtu, first, then in ((4096, 0.5, 0.8), (1024, 0.3, 0.5)):
        for goal in (_first(">=", first), _then(">=", then)):
            yield Row("RoCE bandwidth, MTU %d" % mtu, "GB/s", "roce write_bw, MTU %d" % mtu, "BW average", "link tcp_stream",
                      "gbytes_per_second", goal)
    yield Row("RoCE CPU time", "s/GB", "roce send_bw -e", "cpu_seconds_per_gbyte", "link tcp_stream",
              "cpu_seconds_per_gbyte", None, "both ends")
    yield Row("RoCE latency 8 B", "us", "roce send_lat 8", "t_typical", "link udp_ping_pong", "median_us",
              _first("<=", 1.3))
    yield Row("RoCE latency 8 B", "us", "roce write_lat 8", "t_typical", "link udp_ping_pong", "median_us", None,
              "the program polls memory")
    yield Row("RoCE message rate 64 B", "M/s", "roce send_bw 64", "MsgRate", None, None, _first(">=", 1.0))
    yield Row("RoCE bandwidth, 1 % lost", "GB/s", "roce write_bw, 1 % lost", "BW average", "roce write_bw, one by one",
              "BW average", _first(">=", 0.5))
    yield Row("RoCE, 1,000 idle QPs: CPU", "%", "roce idle_qps", "cpu_percent", None, None, _first("<", 0.05))


ROWS = [
    Row("send latency 8 B", "us", "ib_send_lat 8", "t_avg", "libfabric shm 8", "mean", _first("<=", 1.0)),
    Row("send latency 8 B", "us", "ib_send_lat 8", "t_typical", "ucx tag_lat 8", "50%ile", _then("<=", 1.5)),
    Row("send latency 8 B", "us", "ib_send_lat 8", "t_typical", "hand_over", "median_us", _first("<=", 1.5),
        "floor"),
    Row("send latency 4 KiB", "us", "ib_send_lat 4096", "t_avg", "libfabric shm 4096", "mean", None),
    Row("send latency 4 KiB", "us", "ib_send_lat 4096", "t_typical", "ucx tag_lat 4096", "50%ile", None),
    Row("write latency 8 B", "us", "ib_write_lat 8", "t_typical", "process_vm_writev 8", "median_us",
        _first("<=", 1.0)),
    Row("write latency 8 B", "us", "ib_write_lat 8", "t_typical", "ucx put_lat 8", "50%ile", _then("<=", 2.0),
        "shared heap"),
    Row("write latency 8 B", "us", "ib_write_lat 8", "t_typical", "mem_pwrite 8", "median_us", None),
    Row("write latency 8 B", "us", "ib_write_lat 8", "t_typical", "process_vm_hand_over", "median_us", None,
        "both polling"),
    Row("write latency 8 B", "us", "ib_write_lat 8", "t_typical", "mem_hand_over", "median_us", None, "floor"),
    Row("read latency 8 B", "us", "ib_read_lat 8", "t_typical", "process_vm_readv 8", "median_us",
        _first("<=", 1.0)),
    Row("read latency 8 B", "us", "ib_read_lat 8", "t_typical", "ucx put_lat 8", "50%ile", _then("<=", 2.0),
        "shared heap"),
    Row("write latency 4 KiB", "us", "ib_write_lat 4096", "t_typical", "process_vm_writev 8", "median_us",
        _first("<=", 1.5)),
    Row("write latency 4 KiB", "us", "ib_write_lat 4096", "t_typical", "process_vm_writev 4096", "median_us",
        _then("<=", 1.2)),
    Row("write latency 4 KiB", "us", "ib_write_lat 4096", "t_typical", "mem_pwrite 4096", "median_us", None),
    Row("read latency 4 KiB", "us", "ib_read_lat 4096", "t_typical", "process_vm_readv 8", "median_us",
        _first("<=", 1.5)),
    Row("read latency 4 KiB", "us", "ib_read_lat 4096", "t_typical", "process_vm_readv 4096", "median_us",
        _then("<=", 1.2)),
    *_ucx_rows(),
    *_bandwidth_rows(),
    Row("write latency 8 B", "us", "shared ib_write_lat 8", "t_typical", "ucx put_lat 8", "50%ile",
        _first("<=", 2.0), "shared memory"),
    Row("read latency 8 B", "us", "shared ib_read_lat 8", "t_typical", "ucx put_lat 8", "50%ile", _first("<=", 2.0),
        "shared memory"),
    Row("fetch-and-add 8 B", "us", "shared ib_atomic_lat", "t_typical", "ucx fadd 8", "50%ile", _first("<=", 2.0),
        "shared memory"),
    Row("write bandwidth 64 KiB", "GB/s", "shared ib_write_bw 65536", "BW average", "memcpy 65536",
        "gbytes_per_second", _first(">=", 0.8), "shared memory"),
    Row("write bandwidth 1 MiB", "GB/s", "shared ib_write_bw 1048576", "BW average", "memcpy 1048576",
        "gbytes_per_second", _first(">=", 0.8), "shared memory"),
    *_heap_rows(),
    Row("message rate 64 B", "M/s", "ib_send_bw 64", "MsgRate", "ucx tag_bw 64", "rate", _first(">=", 1.0)),
    Row("message rate 64 B", "M/s", "ib_send_bw 64", "MsgRate", "ucx tag_bw 64", "rate", _then(">=", 2.0)),
    Row("message rate 64 B", "M/s", "ib_send_bw 64", "MsgRate", "ucx am_bw 64", "rate", None),
    Row("1,000 idle QPs: CPU", "%", "idle_qps", "cpu_percent", None, None, _first("<", 0.05), "0 % to one digit"),
    Row("1,000 idle QPs: memory", "B/QP", "idle_qps", "bytes_per_qp", None, None, _first("<", 8192)),
    Row("1,000 idle QPs: CPU", "%", "network idle_qps", "cpu_percent", None, None, _first("<", 0.05),
        "network open"),
    Row("1,000 connections", "1/s", "cmtime", "connections per second", None, None, None, "all steps to connect"),
    *(Row("1,000 connections", "us", "cmtime", step, None, None, None, "each") for step in CMTIME_STEPS),
    Row("network latency 8 B", "us", "network send_lat 8", "t_avg", "libfabric tcp 8", "mean", _first("<=", 1.0)),
    Row("network latency 8 B", "us", "network send_lat 8", "t_typical", "tcp_hand_over 8", "median_us", None, "floor"),
    Row("network bandwidth 64 KiB", "GB/s", "network write_bw 65536", "BW average", "tcp_stream 65536",
        "gbytes_per_second", None),
    Row("network bandwidth 1 MiB", "GB/s", "network write_bw 1048576", "BW average", "tcp_stream 1048576",
        "gbytes_per_second", _first(">=", 0.9), "the design asks for 0.8"),
    Row("network bandwidth 1 MiB", "GB/s", "network write_bw 1048576", "BW average", "tcp_stream 1048576",
        "gbytes_per_second", _then(">=", 0.95)),
    Row("network message rate 64 B", "M/s", "network send_bw 64", "MsgRate", "libfabric tcp rate 64",
        "million_messages_per_second", _first(">=", 1.0)),
    Row("network message rate 64 B", "M/s", "network send_bw 64", "MsgRate", "ucx tcp tag_bw 64", "rate",
        _first(">=", 1.0)),
    Row("latency 8 B, 1,000 QPs", "us", "latency, 1000 QPs", "median_us", "latency, 1 QP", "median_us", _then("<=", 1.0),
        "within a node"),
    Row("latency 8 B, 1,000 QPs", "us", "network latency, one of 1000 QPs", "median_us", "network latency, 1 QP",
        "median_us", _first("<=", 1.0), "between nodes, one in use"),
    Row("latency 8 B, 1,000 QPs", "us", "network latency, 1000 QPs", "median_us", "network latency, 1 QP", "median_us",
        None, "between nodes"),
    Row("latency 8 B, 1,000 QPs", "us", "network latency, 1000 QPs", "mean_us", "network latency, 1 QP", "mean_us", None,
        "between nodes"),
    Row("8 pairs on 2 processors", "s", "8 pairs", "seconds", "8 pairs", "cpu_seconds", _first("<=", 1.3),
        "CPU time / processors"),
    Row("8 pairs on 2 processors", "s", "8 pairs", "seconds", "8 pairs in turn", "cpu_seconds", _then("<=", 1.3),
        "CPU time of the same work, pair by pair"),
    Row("message rate, 1,000 QPs", "M/s", "network send_bw 64, 1000 QPs", "MsgRate", "network send_bw 64, 1 QP",
        "MsgRate", _first(">=", 1.0), "between nodes"),
    *_scale_rows(),
    *_roce_rows(),
]


def measures_of(rows):
    """Names of the measures in the order they run within a round: each subject, then its yardsticks (A B A B ...)."""
    order = []
    for row in rows:
        for name in (row.subject, row.yardstick):
            if name is not None and name not in order:
                order.append(name)
    return order


def summary(samples, name, statistic):
    """Median, min and max over the rounds of one statistic; None if no round has it."""
    values = [each[statistic] for each in samples.get(name, []) if each is not None and statistic in each]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "samples": values}


def judge(row, samples, reasons):
    """One row as it is printed and written. `samples` maps a measure to a list of {statistic: value} or None (failed)
    per round, `reasons` to why it was not available, or not always."""
    figure = summary(samples, row.subject, row.subject_statistic)
    result = {
        "work": row.work, "unit": row.unit, "note": row.note,
        "figure": _side(row.subject, row.subject_statistic, figure, samples, reasons),
        "yardstick": None, "ratio": None, "ratio_of_rounds": None,
        "goal": None if row.goal is None else vars(row.goal), "met": None,
    }
    value = None if figure is None else figure["median"]
    if row.yardstick is not None:
        measure = summary(samples, row.yardstick, row.yardstick_statistic)
        result["yardstick"] = _side(row.yardstick, row.yardstick_statistic, measure, samples, reasons)
        value = None
        if figure is not None and measure is not None and measure["median"] > 0:
            value = result["ratio"] = figure["median"] / measure["median"]
            rounds = [a[row.subject_statistic] / b[row.yardstick_statistic]
                      for a, b in zip(samples[row.subject], samples[row.yardstick])
                      if a and b and b.get(row.yardstick_statistic)]
            if rounds:
                result["ratio_of_rounds"] = {"min": min(rounds), "max": max(rounds)}
    if row.goal is not None and value is not None:
        result["met"] = row.goal.met(value)
    return result


def _side(name, statistic, figures, samples, reasons):
    side = {"what": MEASURES[name][1], "statistic": statistic, "available": figures is not None}
    if figures is not None:
        side.update(figures)
    failed = sum(each is None for each in samples.get(name, []))
    if name in reasons:
        side["reason"] = reasons[name]
    if figures is not None and failed:
        side["failed_rounds"] = failed
    return side
