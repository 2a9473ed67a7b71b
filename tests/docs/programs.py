#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""docs/PROGRAMS.md is made from the tests that run stock programs, and fails this test when they have changed
since.

usage: programs.py ROOT                       is the page as the tests are? Versions and results are those of the
                                              machine that wrote the page, so they are not compared
       programs.py ROOT --write [RESULTS...]  writes the page, with the results of ctest --output-junit. A row of
                                              which they have nothing keeps its result

The cases are those of tests/programs, tests/network, tests/rsockets and tests/interop;
tests/programs/catalogue.py has the package of each program and what to set. A case about a program that is
not there is an error.
"""

import collections
import dataclasses
import fnmatch
import functools
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

root = pathlib.Path(sys.argv[1]).resolve()
sys.path[:0] = [str(root / "tests" / folder) for folder in ("programs", "network", "interop")]
sys.dont_write_bytecode = True

from harness.registry import CASES  # noqa: E402
import cases  # noqa: E402, F401 (fills the table)
import catalogue  # noqa: E402
import expectations  # noqa: E402
import rows  # noqa: E402, F401
import run_pyverbs  # noqa: E402
from rows.table import GROUPS  # noqa: E402

PAGE = root / "docs/PROGRAMS.md"
FEWEST_ROWS = 40
TOP = """# Programs

Stock programs, unmodified, as Debian packages them, and what the tests run of them. `tests/docs/programs.py` makes
this page from the tests, with the results of one run of ctest, of `tests/programs/nightly` for programs that are too
large for ctest, and of `tests/programs/from_sources` for programs that no package has. `docs.programs` fails when the
tests have changed since. "More" are cases between two nodes that ctest leaves out: `tests/network/run.py` without
`--quick` runs them.

Each program is started by `verbena run -- PROGRAM`, between two nodes by `verbena run --ip ADDRESS -- PROGRAM`.

"""
HEAD = ("program", "package", "what is run", "cases on one machine", "between two nodes", "result", "what to set")
ELSEWHERE = """
## What adapters do not run, either

These are not in the table: the program ends, or its package lacks RDMA, for a reason in its own code, so that an adapter
does not help.

| program | package | what happens, and where the reason stands |
| --- | --- | --- |
"""
VERSION, RESULT = HEAD.index("package"), HEAD.index("result")

package_of = {program: package for package, programs in catalogue.PACKAGES.items() for program in programs}

# The way of a run, by the words of its variant: the first that fits.
WAYS = (("rdma_cm", "rdma_cm"), ("xrc", "XRC"), ("uc", "UC"), ("ud", "UD"), ("srq", "SRQ"))
REFUSED = "where process_vm_* is refused"


@dataclasses.dataclass
class Row:
    one: list = dataclasses.field(default_factory=list)  # the variants on one machine
    two: list = dataclasses.field(default_factory=list)  # between two nodes
    more: int = 0  # variants between two nodes that ctest leaves out
    tests: set = dataclasses.field(default_factory=set)  # of ctest


def fits(name, patterns):
    return any(fnmatch.fnmatch(name, f"{pattern}*" if pattern.endswith(".") else pattern) for pattern in patterns)


def way_of(program, variant):
    """The way that the program's row is named by, and what is left of the variant's name."""
    words = re.split(r"[_.]", variant)
    if program == "ucx_perftest":
        return words[0], variant.split("_", 1)[1]
    if program == "fi_pingpong":
        return words[0], variant.partition("_")[2] or "all sizes"
    if program == "rdma_xclient":
        return variant.upper(), "plain"
    if program == "qperf":
        return ("rdma_cm" if variant.endswith("_rdma_cm") else "InfiniBand"), variant.removesuffix("_rdma_cm")
    if program.startswith("ib_"):
        for word, way in WAYS:
            if word in variant if word == "rdma_cm" else word in words:
                rest = variant.replace("rdma_cm", "").removeprefix(f"{word}_").strip("_")
                return way, "plain" if rest in ("", word) else rest
        return "RC", variant
    return "", variant


def program_of(name):
    """(program, way, variant) of a case, or None if it is about no stock program."""
    if fits(name, catalogue.OTHER_CASES):
        return None
    if name in catalogue.ABOUT:
        program, variant = catalogue.ABOUT[name]
        return program, "", variant
    if name.startswith("refused."):
        place, _, rest = name.removeprefix("refused.").partition(".")
        program, _, variant = rest.partition(".")
        return program, REFUSED, f"{place} {variant}".strip()
    program, _, variant = name.partition(".")
    way, variant = way_of(program, variant or "plain")
    return program, way, variant


def programs_rows(table):
    for name in CASES:
        found = program_of(name)
        if found:
            program, way, variant = found
            table[program, way].one.append(variant)
            table[program, way].tests.add(f"programs.{name}")


def network_rows(table):
    for group in GROUPS.values():
        if group.name in catalogue.OTHER_GROUPS:
            continue
        for row in group.rows:
            if fits(row.name, catalogue.OTHER_ROWS):
                continue
            if group.name == "qperf":
                program, way, variant = "qperf", "rdma_cm", row.name
            else:
                program, way, variant = program_of(f"refused.{row.name}" if group.name == "refused" else row.name)
            if group.name == "perftest_cm":
                way = "rdma_cm"
            entry = table[program, way]
            if row.quick:
                entry.two.append(f"IPv6 {variant}" if group.ipv6 else variant)
                entry.tests.update(f"network.{group.name}.{place}" for place in group.places)
            else:
                entry.more += 1


def suite_rows(table):
    entry = table["librspreload.so", ""]
    entry.one.append("an ordinary server and client (Python)")
    entry.tests.add("rsockets.preload.an_ordinary_server_and_client")
    exceptions = expectations.read(10**6)
    for module in sorted(run_pyverbs.GENERIC):
        entry = table["pyverbs", f"tests.{module}"]
        entry.one.append("; ".join(["the module of its test suite", *not_passing(module, exceptions)]))
        entry.tests.add(f"interop.pyverbs.{module}")


def not_passing(module, exceptions):
    """The tests of a module that tests/interop/pyverbs.expected says not to pass: "5 skipped: REASON"."""
    said = {"skip": "skipped", "fail": "failed", "maybe": "skipped on some machines"}
    reasons = collections.Counter((said[outcome], reason.split(" (")[0])
                                  for test, (outcome, reason) in exceptions.items() if test.startswith(f"{module}."))
    return [f"{count} {outcome}: {reason}" for (outcome, reason), count in reasons.items()]


@functools.cache
def installed_version(package):
    seen = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True)
    return f"{package} {seen.stdout}" if seen.returncode == 0 and seen.stdout else package


def result(entry, outcomes, before):
    """What the tests of a row did; where none of them was run, what the page says already."""
    seen = {test: outcomes.get(test) for test in entry.tests}
    failed = sorted(test for test, status in seen.items() if status == "fail")
    if failed:
        return f"fails: {', '.join(failed)}"
    if "run" not in seen.values():
        return before
    skipped = sum(status != "run" for status in seen.values())
    return "passes" + (f"; {skipped} not run" if skipped else "")


def words(variants):
    return ", ".join(dict.fromkeys(variant.replace("_", " ") for variant in variants))


def lines(table, outcomes, written):
    before = {line[0]: line[RESULT] for line in written}
    for (program, way), entry in sorted(table.items(), key=lambda item: (package_of[item[0][0]], item[0])):
        name = f"`{program}` {way}".strip()
        to_set = catalogue.SET.get(f"{program} {way}", catalogue.SET.get(program, "nothing"))
        two = f"{len(entry.two)}" + (f" ({entry.more} more)" if entry.more else "") if entry.two or entry.more else "-"
        yield (name, installed_version(package_of[program]), words([*entry.one, *entry.two]), str(len(entry.one) or "-"), two,
               result(entry, outcomes, before.get(name, "not run")), to_set)


def elsewhere():
    """The table of what fails with adapters, too (catalogue.ON_ADAPTERS_TOO)."""
    return ELSEWHERE + "".join(f"| {program} | {package} | {reason} |\n"
                               for program, package, reason in catalogue.ON_ADAPTERS_TOO)


def results_of(files):
    """Test -> status: "run" (it passed), "fail", or another."""
    return {case.get("name"): case.get("status") for file in files
            for case in xml.etree.ElementTree.parse(file).iter("testcase")}


def read_page():
    return [tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            for line in PAGE.read_text().splitlines() if line.startswith("| `")]


def compared(line):
    return tuple(cell.partition(" ")[0] if place == VERSION else "" if place == RESULT else cell
                 for place, cell in enumerate(line))


def main():
    table = collections.defaultdict(Row)
    programs_rows(table)
    network_rows(table)
    suite_rows(table)
    unknown = sorted({program for program, _ in table} - set(package_of))
    if unknown:
        sys.exit(f"tests/programs/catalogue.py does not know: {', '.join(unknown)}")
    if sys.argv[2:3] == ["--write"]:
        made = list(lines(table, results_of(sys.argv[3:]), read_page() if PAGE.exists() else []))
        cells = [HEAD, ("---",) * len(HEAD), *(tuple(cell.replace("|", "\\|") for cell in line) for line in made)]
        PAGE.write_text(TOP + "".join(f"| {' | '.join(line)} |\n" for line in cells) + elsewhere())
        return
    written = read_page()
    wanted = list(lines(table, {}, written))
    problems = [f"not in the page: {line[0]}" for line in wanted if compared(line) not in map(compared, written)]
    problems += [f"in the page, not so in the tests: {line[0]}" for line in written
                 if compared(line) not in map(compared, wanted)]
    problems += [] if PAGE.read_text().endswith(elsewhere()) else ["not in the page: catalogue.ON_ADAPTERS_TOO"]
    problems += [f"no result: {line[0]}" for line in written if not re.match(r"passes|fails: ", line[RESULT])]
    problems += [f"fewer than {FEWEST_ROWS} rows"] if len(written) < FEWEST_ROWS else []
    print("\n".join(problems) or f"{len(written)} rows, as the tests are")
    if problems:
        sys.exit("docs/PROGRAMS.md: tests/docs/programs.py ROOT --write RESULTS makes it again")


main()
