#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""The unit tests of google/rdma-unit-test over verbena0, with every capability claimed that the suite asks for.

  run_rdma_unit_test.py --sources SUITE --build build/release          exit status 0: every test did what
                                                                       rdma_unit_test.expected says
  run_rdma_unit_test.py ... --filter 'MrTest.*'                        these tests alone
  run_rdma_unit_test.py ... --long                                     as many repetitions as on hardware: millions

SUITE is its source tree. It is built below the build folder, without Bazel (rdma_unit_test/CMakeLists.txt). Needs cmake,
ninja, libabsl-dev, libgoogle-glog-dev, libgtest-dev, libgmock-dev. Takes three to ten minutes.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "programs")]
sys.dont_write_bytecode = True

import googletest  # noqa: E402
from harness.processes import Node  # noqa: E402
from harness.registry import Settings  # noqa: E402

EXPECTED = HERE / "rdma_unit_test.expected"
PROGRAM = "unit_tests"
PATIENCE = 200  # seconds for one test
WAIT = 5  # times two seconds for a completion: the last of five retries may come after 6.4


def built(sources, build):
    """The folder of the program."""
    folder = build / "interop" / "rdma_unit_test"
    folder.mkdir(parents=True, exist_ok=True)
    for command in (["cmake", "-G", "Ninja", f"-DSUITE={sources}", "-S", HERE / "rdma_unit_test", "-B", folder],
                    ["ninja", "-C", folder, PROGRAM]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout[-2000:]}")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--filter", default="*", help="as --gtest_filter")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds that one test may take")
    parser.add_argument("--long", action="store_true")
    options = parser.parse_args()
    folder = built(options.sources, options.build)
    settings = Settings(str(options.build / "bin/verbena"), str(options.build), options.patience)
    with Node(settings) as node, tempfile.TemporaryDirectory() as scratch, open(folder / f"{PROGRAM}.log", "w") as log:
        command = [node.verbena, "run", "--", str(folder / PROGRAM), f"--completion_wait_multiplier={WAIT}",
                   f"--brief={'false' if options.long else 'true'}"]
        environment = {**node.environment(), "VERBENA_LOG": "error", "GLOG_minloglevel": "1"}
        tests = googletest.names(command, environment, options.filter)
        seen = googletest.run(command, environment, tests, options.patience, scratch, log)
    print(f"{PROGRAM}: {googletest.counts(seen)}, of {len(seen)}", flush=True)
    unexpected = list(googletest.differences(googletest.expected(EXPECTED), seen, options.filter == "*"))
    print("\n".join(unexpected), end="\n" if unexpected else "")
    return bool(unexpected)


if __name__ == "__main__":
    sys.exit(main())
