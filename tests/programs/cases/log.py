# SPDX-License-Identifier: BSD-2-Clause
"""What VERBENA_LOG shows of a stock program."""

import re

from harness.failure import expect
from harness.pair import run_pair
from harness.processes import Node
from harness.registry import case

ROUNDS = 10


def said_at(settings, level):
    """stderr of both ends of ibv_rc_pingpong."""
    with Node(settings) as node:
        pair = run_pair(node, "ibv_rc_pingpong", both=("-g", 1, "-n", ROUNDS), harmless=(".",),
                        prefix=("env", f"VERBENA_LOG={level}"))
        return [side.err for side in pair]


@case("log.debug", quick=True)
def every_request_and_completion(settings):
    for said in said_at(settings, "debug"):
        change = r"^verbena\[\d+\] info: \d\d:\d\d:\d\d\.\d{6} thread \d+: QP 0x\w{6}: RTR to RTS$"
        expect(re.search(change, said, re.M), "the log has no state change with time and thread")
        for line in (r"QP 0x\w{6}: request \d+, wr_id 0x2: SEND of 4096 bytes is posted",
                     r"QP 0x\w{6}: receive request \d+, wr_id 0x1: 4096 bytes, is posted",
                     r"request \d+, wr_id 0x2: SEND of 4096 bytes, PSN 0x\w{6}, ends with vendor_err 0x0",
                     r"completion: status 0, opcode"):
            found = len(re.findall(line, said))
            expect(found >= ROUNDS, f"{found} lines of {ROUNDS} match {line}")


@case("log.info")
def state_changes(settings):
    for said in said_at(settings, "info"):
        states = re.findall(r": QP 0x\w{6}: (\w+) to (\w+)$", said, re.M)
        expect(states[:3] == [("RESET", "INIT"), ("INIT", "RTR"), ("RTR", "RTS")], f"the state changes are {states}")
        expect("request" not in said, "requests are logged though nobody asked")


@case("log.unknown_level")
def an_unknown_level(settings):
    for said in said_at(settings, "verbose"):
        expect("VERBENA_LOG=verbose is none of none, error, warn, info, debug" in said, "an unknown level is not named")


@case("log.quiet")
def nothing_is_said_when_nothing_is_wrong(settings):
    for said in said_at(settings, "warn"):
        expect(said == "", f"stderr has {said!r}")
