#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""UCX's own tests (its gtest) over verbena0: its transport layer, uct, for rc_verbs, ud_verbs and rdma_cm, and the protocols
above it, ucp, over rc_verbs and ud_verbs.

  run_ucx.py --sources UCX --build build/release          exit status 0: every test did what the expectations say, or was
                                                          left out by UCX itself, whose reasons it prints with counts
  run_ucx.py ... --layer ucp                              the protocols, not the transport layer
  run_ucx.py ... --part 2/4                               the second quarter of the tests
  run_ucx.py ... --filter 'rc_verbs/test_uct_pending.*'   these tests alone
  run_ucx.py ... --run='--link-layer infiniband'          with these options of verbena run: UCX leaves tests of P_Keys and
                                                          LIDs out on Ethernet

UCX is its source tree (git checkout v1.13.1, for example). It is built below the build folder. Needs autoconf, automake,
libtool, make, g++, libibverbs-dev, librdmacm-dev. The build takes ten minutes on two cores.
"""

import argparse
import collections
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "programs")]
sys.dont_write_bytecode = True

import googletest  # noqa: E402
from harness.processes import Node  # noqa: E402
from harness.registry import Settings  # noqa: E402

# What is tested of each layer. The names of ucp's tests begin with those of its sets of transports; rc is rc_verbs here (rcx
# is that of mlx5's own commands), ib every transport of the device.
TESTS = {"uct": "rc_verbs/*:ud_verbs/*:rdmacm/*", "ucp": "rc/*:ud/*:rcv/*:rc_ud/*:rc_no_ud/*:ib/*"}
PATIENCE = 120  # seconds for one test
CONFIGURE = ("--enable-gtest", "--enable-mt", "--with-verbs", "--with-rdmacm", "--disable-doxygen-doc", "--without-java",
             "--without-go", "--without-cuda", "--without-rocm", "--without-knem", "--without-xpmem", "--without-fuse3")
# Its own optimise, which takes long, and make warnings errors, which later compilers have more of.
FLAGS = ("BASE_CFLAGS=-O1 -w -funwind-tables", "BASE_CXXFLAGS=-O0 -w")
LIBRARIES = ("src/ucm", "src/ucs", "src/uct", "src/ucp", "src/tools/perf/lib", "test/gtest/common/googletest")
OBJECT = r"^[^#\n]*\b((?:common|{})/(?:(?!cuda)\w+/)*gtest-\w+)\.\$\(OBJEXT\)"  # of gtest, in its Makefile

SKIP = re.compile(r"\[ +SKIP +\] \((.*)\)")
MINOR = re.compile(r"define\(\[ucx_ver_minor\], *(\d+)\)")
SINCE = re.compile(r"since 1\.(\d+): ")  # a reason that holds for these versions


def said(command, folder):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} in {folder}:\n{done.stdout[-2000:]}")


def built(sources, build, layer):
    """gtest, of those of its parts alone that test `layer`."""
    folder = build / "interop" / f"ucx-{sources.name}"
    tests = folder / "build/test/gtest"
    if not (folder / "build/config.status").exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sources, folder / "source", symlinks=True, ignore=shutil.ignore_patterns(".git"))
        (folder / "build").mkdir()
        said(["./autogen.sh"], folder / "source")
        said([folder / "source/configure", *CONFIGURE], folder / "build")
    program = tests / f"gtest-{layer}"
    if not program.exists():
        make = ["make", f"-j{os.cpu_count()}", *FLAGS]
        for part in LIBRARIES:
            said([*make, "-C", part], folder / "build")
        objects = sorted(set(re.findall(OBJECT.format(layer), (tests / "Makefile").read_text(), re.M)))
        said([*make, f"EXEEXT=-{layer}", program.name, f"gtest_OBJECTS={'.o '.join(objects)}.o"], tests)
    return program


def part_of(tests, part):
    """Of `tests` every COUNTth from the NUMBERth on; `part` is NUMBER/COUNT."""
    number, count = map(int, part.split("/"))
    return tests[number - 1::count]


def expectations(layer, sources):
    """What does not pass with the version of UCX in `sources`."""
    minor = int(MINOR.search((sources / "configure.ac").read_text())[1])
    entries = ((entry, SINCE.match(entry[2])) for entry in googletest.expected(HERE / f"ucx_{layer}.expected"))
    return [entry for entry, since in entries if not since or int(since[1]) <= minor]


def left_out(seen):
    """(a reason of UCX to leave tests out, their number), the most frequent first."""
    texts = (SKIP.search(text) for outcome, text in seen.values() if outcome == "skip")
    return collections.Counter(found[1] if found else "without a reason" for found in texts).most_common()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--layer", choices=TESTS, default="uct")
    parser.add_argument("--filter", help="as --gtest_filter")
    parser.add_argument("--run", type=shlex.split, default=[], help="options of verbena run")
    parser.add_argument("--part", default="1/1", help="NUMBER/COUNT")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds that one test may take")
    options = parser.parse_args()
    settings = Settings(str(options.build / "bin/verbena"), str(options.build), options.patience)
    program = built(options.sources, options.build, options.layer)
    with Node(settings) as node, tempfile.TemporaryDirectory() as scratch, open(f"{program}.log", "w") as log:
        command = [node.verbena, "run", *options.run, "--", str(program)]
        environment = {**node.environment(), "VERBENA_LOG": "error", "UCX_HANDLE_ERRORS": "bt", "UCX_LOG_LEVEL": "warn"}
        tests = part_of(googletest.names(command, environment, options.filter or TESTS[options.layer]), options.part)
        seen = googletest.run(command, environment, tests, options.patience, scratch, log)
    print(f"{options.layer}: {googletest.counts(seen)}, of {len(seen)}", flush=True)
    for reason, count in left_out(seen):
        print(f"  {count} left out: {reason}")
    expected = expectations(options.layer, options.sources)
    # What it leaves out is no difference, unless the expectations name the test.
    told = {test: result for test, result in seen.items()
            if result[0] != "skip" or googletest.entry_of(expected, test)}
    unexpected = list(googletest.differences(expected, told, not options.filter and options.part == "1/1"))
    print("\n".join(unexpected), end="\n" if unexpected else "")
    return bool(unexpected)


if __name__ == "__main__":
    sys.exit(main())
