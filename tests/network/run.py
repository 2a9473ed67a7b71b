#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs one group of tests/network, or lists them all for CMake.

  run.py --list                                                 group.place, processors: one test per line
  run.py pingpong.namespaces --verbena build/release/bin/verbena --build build/release
  run.py pingpong.loopback --row ibv_rc_pingpong.events ...     one row of it
  run.py perftest.namespaces --quick ...                        what ctest runs of it: each program once
  run.py pingpong.one_node --pending ...                        the same inside one node, to judge the row itself

Exit status 0: every row passed; 1: a row failed; 77: nothing of it can run here. Rows in pending.txt wait for what is
not built yet; --pending runs them as well.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "programs")]
sys.dont_write_bytecode = True

import rows  # noqa: E402, F401 (fills the table)
from harness.failure import Failure, Skip  # noqa: E402
from harness.registry import Settings  # noqa: E402
from places import namespaces  # noqa: E402
from places.loopback import Loopback  # noqa: E402
from places.one_node import OneNode  # noqa: E402
from rows.table import GROUPS  # noqa: E402

SKIPPED = 77
PLACES = {"namespaces": namespaces.Namespaces, "loopback": Loopback, "one_node": OneNode}


def pending():
    """{"group.row" or "group": reason}"""
    lines = open(os.path.join(HERE, "pending.txt")).read().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def make_key(settings, folder, group, place):
    """The fabric's key; None where no network is needed. Raises Skip where this `verbena` knows of no network."""
    key = os.path.join(folder, "key")
    if not group.needs_network or place == "one_node":
        return key
    if "--ip" not in subprocess.run([settings.verbena, "run", "--help"], capture_output=True, text=True).stdout:
        raise Skip("this build has no path between nodes: `verbena run` knows no --ip")
    made = subprocess.run([settings.verbena, "key", key], capture_output=True, text=True)
    if made.returncode != 0:
        raise Failure(f"verbena key ended with status {made.returncode}: {made.stderr}")
    return key


def run_row(row, hosts):
    began = time.monotonic()
    failed = None
    try:
        row.run(hosts)
    except Skip as reason:
        print(f"skipped {row.name}: {reason}", flush=True)
    except Failure as failure:
        failed = failure
        for host in hosts:
            print(host.transcript())
        print(f"FAILED  {row.name}: {failure}", flush=True)
    else:
        print(f"passed  {row.name} ({time.monotonic() - began:.1f} s)", flush=True)
    finally:
        for host in hosts:
            host.end_programs()
    return failed is None


def run_group(group, place, settings, options):
    waiting = {} if options.pending else pending()
    chosen = [row for row in group.rows if row.name in options.row or not options.row and (row.quick or not options.quick)]
    ready = [row for row in chosen if f"{group.name}.{row.name}" not in waiting and group.name not in waiting]
    for row in (row for row in chosen if row not in ready):
        print(f"pending {row.name}: {waiting.get(f'{group.name}.{row.name}') or waiting[group.name]}")
    if not ready:
        raise Skip("all rows are pending")
    with tempfile.TemporaryDirectory(prefix="vn.", dir="/tmp") as folder:
        key = make_key(settings, folder, group, place)
        with PLACES[place](settings, key, group.ipv6).hosts(group.hosts) as hosts:
            if group.roce:
                for host in hosts:
                    host.options = ["--roce", host.address]
            return all(all([run_row(row, hosts) for row in ready]) for _ in range(options.repeat))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {f"{group.name}.{place}": (group, place) for group in GROUPS.values() for place in PLACES}
    parser.add_argument("name", nargs="?", choices=sorted(names), metavar="GROUP.PLACE")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--quick", action="store_true", help="without the rows that only sweep further, as ctest does")
    parser.add_argument("--repeat", type=int, default=1, help="how many times; the first failure ends it")
    parser.add_argument("--pending", action="store_true", help="also the rows of pending.txt")
    parser.add_argument("--images", default="", help="for the groups images and images_apart: docker/build-images' folder")
    parser.add_argument("--verbena", default="verbena")
    parser.add_argument("--build", default="")
    parser.add_argument("--patience", type=float, default=60, help="seconds that one program may take")
    options = parser.parse_args()
    if options.list:
        for name, (group, place) in names.items():
            if place in group.places:
                print(name, group.processors)
        return 0
    if not options.name:
        parser.error("which group?")
    if options.images:
        os.environ["VERBENA_TEST_IMAGES"] = os.path.abspath(options.images)
    group, place = names[options.name]
    try:
        if place == "namespaces":
            namespaces.enter()
        settings = Settings(options.verbena, options.build, options.patience)
        passed = run_group(group, place, settings, options)
    except Skip as reason:
        print(f"SKIPPED: {reason}")
        return SKIPPED
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    print("passed" if passed else "FAILED: see the rows above")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
