# SPDX-License-Identifier: BSD-2-Clause
"""Stock programs under `verbena run --shared-heap`: they gain by it, and where it cannot be it says so.

programs.py VERBENA ALLOCATOR_STORM
"""

import ctypes.util
import os
import re
import shutil
import socket
import subprocess
import sys
import unittest

VERBENA, ALLOCATOR_STORM = sys.argv.pop(1), sys.argv.pop(1)
NODE = "shared-heap-programs"


def run(arguments, options=("--shared-heap",), **more):
    return subprocess.run([VERBENA, "run", "--node", NODE, *options, "--", *arguments], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, **more)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def least_latency(tool, options, *arguments):
    """Microseconds of the fastest message of perftest's `tool`, server and client on one node: others use the processors,
    too, and the first messages come before the peers have mapped the memory."""
    port = str(free_port())
    script = (f"{tool} -p {port} {' '.join(arguments)} > /dev/null & "
              f"for i in $(seq 100); do {tool} -p {port} {' '.join(arguments)} localhost 2> /dev/null && break; "
              "sleep 0.1; done; wait")
    output = run(["sh", "-c", script], options).stdout
    row = re.search(r"^ *\d+ +\d+ +([\d.]+) +([\d.]+) +([\d.]+)", output, re.M)
    assert row, output
    return float(row.group(1))


class Programs(unittest.TestCase):
    def test_write_and_read_and_atomics_gain(self):
        for tool, *arguments in (("ib_write_lat", "-s", "8"), ("ib_read_lat", "-s", "8"),
                                 ("ib_atomic_lat", "-A", "FETCH_AND_ADD")):
            with self.subTest(tool=tool):
                if shutil.which(tool) is None:
                    self.fail(f"no {tool}: scripts/install-packages.sh test")
                without = least_latency(tool, (), "-n", "2000", *arguments)
                self.assertLess(least_latency(tool, ("--shared-heap",), "-n", "200000", *arguments), 0.7 * without)

    def test_receives_of_every_kind_get_the_bytes(self):
        # Longer than what travels in a completion. -c: the receiver looks at every byte.
        for tool, *arguments in (("ibv_rc_pingpong", "-s", "200000", "-c"), ("ibv_srq_pingpong", "-s", "65536", "-c"),
                                 ("ibv_ud_pingpong", "-s", "2048", "-c"), ("ibv_xsrq_pingpong", "-s", "65536")):
            with self.subTest(tool=tool):
                if shutil.which(tool) is None:
                    self.fail(f"no {tool}: scripts/install-packages.sh test")
                words = f"{tool} -g 0 -n 500 -p {free_port()} {' '.join(arguments)}"
                ran = run(["sh", "-c", f"{words} & server=$!; for i in $(seq 100); do {words} localhost && break; sleep 0.1; "
                                       "done && wait $server"])
                self.assertEqual(ran.returncode, 0, ran.stdout)
                self.assertEqual(ran.stdout.count("success" if tool == "ibv_xsrq_pingpong" else "500 iters"), 2, ran.stdout)
                self.assertNotIn("invalid data", ran.stdout)

    def test_allocators_that_give_memory_back_at_once(self):
        # They call munmap(2) and madvise(2) with their locks held, also where the emulator calls malloc(3).
        eager = {"MALLOC_CONF": "retain:false,dirty_decay_ms:0,muzzy_decay_ms:0", "TCMALLOC_RELEASE_RATE": "10",
                 "TCMALLOC_AGGRESSIVE_DECOMMIT": "1"}
        for allocator in (None, "jemalloc", "tcmalloc_minimal"):
            with self.subTest(allocator=allocator):
                library = allocator and ctypes.util.find_library(allocator)
                if allocator and library is None:
                    self.fail(f"no {allocator}: scripts/install-packages.sh test")
                environment = {**os.environ, **eager, "LD_PRELOAD": library or ""}
                ran = run([ALLOCATOR_STORM, "1"], env=environment)
                self.assertEqual(ran.returncode, 0, ran.stdout)
                self.assertRegex(ran.stdout, r"\d+ rounds, \d+ forks\n")

    def test_valgrind_has_its_own_books(self):
        if shutil.which("valgrind") is None:
            self.fail("no valgrind: scripts/install-packages.sh test")
        ran = run(["valgrind", "-q", "ibv_devinfo"])
        self.assertEqual(ran.returncode, 0, ran.stdout)
        self.assertIn("--shared-heap is off in process", ran.stdout)
        self.assertIn("valgrind", ran.stdout)

    def test_without_the_option_nothing_is_shared(self):
        ran = run(["sh", "-c", "echo heap=$VERBENA_SHARED_HEAP"], ())
        self.assertEqual(ran.stdout, "heap=\n")
        ran = run(["sh", "-c", "echo heap=$VERBENA_SHARED_HEAP"])
        self.assertEqual(ran.stdout, "heap=1\n")


if __name__ == "__main__":
    unittest.main()
