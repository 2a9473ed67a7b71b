# SPDX-License-Identifier: BSD-2-Clause
"""Reads the output of the measured programs. Pure functions: text in, {statistic: value} out, ParseError otherwise.

Latencies are in microseconds, bandwidths in GB/s (10^9), rates in million messages per second.
"""
import json
import re
import statistics


class ParseError(Exception):
    """The text holds no result; str() says what was looked for."""


# A sample line of perftest's -H list: "17, 1.234" (perftest 4.5, print_report_lat: "%d, %g").
_SAMPLE = re.compile(r"^\d+, ([0-9.]+(?:e[-+]?\d+)?)$", re.MULTILINE)


def _numbers_after(text, heading):
    """The first line of plain numbers below the line that contains `heading`."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if heading in line:
            for below in lines[at + 1:]:
                words = below.split()
                try:
                    numbers = [float(word) for word in words]
                except ValueError:
                    continue
                if numbers:
                    return numbers
    raise ParseError("no line of figures below '%s'" % heading)


def perftest_latency(text):
    """ib_*_lat -H. perftest halves the round trip of send and write; a read is the whole round trip.

    The summary line has two decimals only (10 ns steps), so where the list of samples is there, median and mean
    are taken from it: they are t_typical and t_avg with more digits. Columns: perftest 4.5, RESULT_FMT_LAT.
    """
    numbers = _numbers_after(text, "t_typical[usec]")
    if len(numbers) < 6:
        raise ParseError("perftest's latency line has %d columns, expected 9" % len(numbers))
    result = {"min": numbers[2], "t_typical": numbers[4], "t_avg": numbers[5]}
    samples = [float(each) for each in _SAMPLE.findall(text)]
    if len(samples) > 1:
        result["t_typical"] = statistics.median(samples)
        result["t_avg"] = statistics.fmean(samples)
    return result


def perftest_bandwidth(text):
    """ib_*_bw --report_gbits. Gb/s are 10^9 bits; columns: perftest 4.5, RESULT_FMT_G."""
    numbers = _numbers_after(text, "MsgRate[Mpps]")
    if len(numbers) < 5:
        raise ParseError("perftest's bandwidth line has %d columns, expected 5" % len(numbers))
    return {"BW average": numbers[3] / 8, "MsgRate": numbers[4]}


def fi_pingpong(text):
    """libfabric's fi_pingpong: usec/xfer is half a round trip, a mean. It has two decimals; Mxfers/sec is the same
    figure upside down and has more digits when transfers are short."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.startswith("bytes") and at + 1 < len(lines):
            words = lines[at + 1].split()
            if len(words) >= 8:
                usec, mxfers = float(words[6]), float(words[7])
                return {"mean": 1 / mxfers if mxfers > 1 else usec}
    raise ParseError("no line below fi_pingpong's heading")


def ucx_perftest(text):
    """ucx_perftest -f: one line of eight numbers: iterations; latency 50%ile, average, overall; MB/s (2^20) average,
    overall; messages per second average, overall."""
    for line in reversed(text.splitlines()):
        words = line.split()
        if len(words) == 8:
            try:
                numbers = [float(word) for word in words]
            except ValueError:
                continue
            return {"50%ile": numbers[1], "average": numbers[2], "bandwidth": numbers[5] * 2**20 / 1e9,
                    "rate": numbers[7] / 1e6}
    raise ParseError("no line of eight figures from ucx_perftest")


# The steps of a connection in cmtime's table, by its names (rdma-core 44, librdmacm/examples/cmtime.c), until it can be
# used; disconnect and destroy follow.
CMTIME_SET_UP = ("create id", "bind addr", "resolve addr", "resolve route", "create qp", "connect")
CMTIME_STEPS = CMTIME_SET_UP + ("disconnect", "destroy")
_CMTIME_LINE = re.compile(r"^(%s) *: +([0-9.]+) +([0-9.]+) +([0-9.]+) +([0-9.]+)$" % "|".join(CMTIME_STEPS),
                          re.MULTILINE)


def cmtime(text, connections):
    """rdmacm-utils' cmtime: microseconds per connection of each step, which it does for all connections before the
    next one, and how many connections per second the steps of setting up come to."""
    steps = {name: float(total) * 1000 / connections for name, total, _, _, _ in _CMTIME_LINE.findall(text)}
    missing = [name for name in CMTIME_STEPS if name not in steps]
    if missing:
        raise ParseError("cmtime prints no '%s'" % missing[0])
    steps["connections per second"] = 1e6 / sum(steps[name] for name in CMTIME_SET_UP)
    return steps


def own_json(text):
    """verbena_bench_*: one JSON object of numbers on the last line; names are kept."""
    lines = [line for line in text.splitlines() if line.strip()]
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise ParseError("no JSON on the last line")
    return {name: value for name, value in found.items() if isinstance(value, (int, float))}


# Words by which a line says why a program failed; a usage page or a table is no reason.
_REASON = re.compile(r"error|fail|unable|cannot|can't|could ?n.t|no such|not |no rdma|invalid|refused|denied|abort|signal",
                     re.IGNORECASE)
_PATH = re.compile(r"(?<![\w.])/(?:[^\s/:'\"]+/)+")


def error_line(text):
    """The line that best explains why a program failed, without the folders of this machine; '' if there is none."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -\t")]
    if not lines:
        return ""
    telling = [line for line in lines if _REASON.search(line)]
    return _PATH.sub("", (telling or lines)[-1])[:160]
