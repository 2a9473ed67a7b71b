# SPDX-License-Identifier: BSD-2-Clause
"""ibv_srq_pingpong and ibv_xsrq_pingpong of ibverbs-utils."""

from cases.pingpong import check
from harness.failure import expect
from harness.pair import run_pair
from harness.processes import Node
from harness.registry import add


def shared(settings, options, size=4096, iterations=1000):
    with Node(settings) as node:
        both = ("-g", 1, "-s", size, "-n", iterations, "-c", *options)
        for side in run_pair(node, "ibv_srq_pingpong", both=both):
            check(side, size, iterations)


SHARED = {
    "plain": ((), {}, True),
    "events": (("-e",), {}, True),
    "one_queue_pair": (("-q", 1), {}, False),
    "size_1": ((), {"size": 1}, False),
    "size_200": ((), {"size": 200}, False),
    "size_1M": ((), {"size": 1 << 20, "iterations": 100}, False),
}
for variant, (program_options, difference, is_quick) in SHARED.items():
    add(f"ibv_srq_pingpong.{variant}",
        lambda settings, o=program_options, d=difference: shared(settings, o, **d), is_quick)


def extended(settings, options):
    """Each side has an SRQ and a receiving queue pair of its own, in one domain that a file names."""
    with Node(settings) as node:
        for side in run_pair(node, "ibv_xsrq_pingpong", both=("-g", 1, *options)):
            expect("success" in side.out, f"{side.name} did not report success")


EXTENDED = {"plain": ((), True), "events": (("-e",), True), "size_1": (("-s", 1), False),
            "size_100000": (("-s", 100000), False)}
for variant, (program_options, is_quick) in EXTENDED.items():
    add(f"ibv_xsrq_pingpong.{variant}", lambda settings, o=program_options: extended(settings, o), is_quick)
