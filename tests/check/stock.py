#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs stock programs under `verbena check`: the cases of tests/programs, and the pyverbs suite of tests/interop. What
they do must succeed as under `verbena run`, and nothing may be found but what stock.supp names, with its reason.

  stock.py --verbena VERBENA --build FOLDER                 a few cases, for ctest
  stock.py --verbena VERBENA --build FOLDER --all           all of them, for the nightly run
  stock.py --verbena VERBENA --build FOLDER PATTERN...      cases by name, such as 'ib_send_lat.*' or 'pyverbs.test_qp'
"""

import argparse
import fnmatch
import json
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "programs"), str(HERE.parent / "interop")]
sys.dont_write_bytecode = True

import cases  # noqa: E402, F401 (fills the table)
import run_pyverbs  # noqa: E402
from harness.failure import Failure, Skip  # noqa: E402
from harness.processes import Node, Program  # noqa: E402
from harness.registry import CASES, Settings  # noqa: E402

FEW = ("ib_send_bw.plain", "ib_write_lat.plain", "ib_atomic_bw.plain", "ib_send_lat.ud", "ibv_rc_pingpong.events",
       "ibv_srq_pingpong.plain", "ibv_ud_pingpong.gid1", "rping.plain", "ucx_perftest.rc_tag_lat", "ucx_perftest.ud_ucp_put_lat")
ALL = ("ib_*", "ibv_*_pingpong.*", "rping.*", "ucmatose.*", "udaddy.*", "qperf.*", "ucx_perftest.rc_*", "ucx_perftest.ud_*",
       "pyverbs.test_*")
# Long by design; one that stops the process that it has started, which is the command here; one that has to be refused.
NOT_HERE = ("*.many_rounds", "rping.server_stopped", "ibv_rc_pingpong.ethernet_needs_gid")
SUPPRESSIONS = HERE / "stock.supp"


def check_instead_of_run(folder):
    """From now on a Node starts its programs under `verbena check`, whose reports go to `folder`."""
    def start(self, *command, name=None):
        report = pathlib.Path(folder) / f"{len(os.listdir(folder))}.json"
        report.touch()
        line = [*self._as_user, self.verbena, "check", *map(str, self.options), "--quiet", "--json", str(report),
                "--suppressions", str(SUPPRESSIONS), "--", *map(str, command)]
        program = Program(name or command[0], line, self.environment(), None)
        self._programs.append(program)
        return program
    Node.start = start


def findings(folder):
    """(report, finding) of all reports. One that was killed has written none."""
    for report in sorted(pathlib.Path(folder).iterdir()):
        if report.stat().st_size != 0:
            yield from json.loads(report.read_text())["findings"]
        report.unlink()


def describe(finding):
    lines = [f"  {finding['rule']}: {finding['what']}"]
    for call in finding["calls"]:
        lines.append(f"    {call['what']}:")
        lines += [f"      {frame.get('function') or frame.get('module')} {frame.get('file', '')}:{frame.get('line', '')}"
                  for frame in call["stack"][:6]]
    return "\n".join(lines)


def pyverbs(module):
    def run(settings):
        run_pyverbs.run(argparse.Namespace(verbena=settings.verbena, build=settings.build, patience=settings.patience,
                                           module=module, propose=False))
    return run


def chosen(patterns):
    table = {name: case.run for name, case in CASES.items()}
    table.update({f"pyverbs.{module}": pyverbs(module) for module in run_pyverbs.modules()})
    names = [name for name in table if any(fnmatch.fnmatch(name, each) for each in patterns)
             and not any(fnmatch.fnmatch(name, each) for each in NOT_HERE)]
    for each in patterns:
        if not fnmatch.filter(table, each):
            sys.exit(f"no case is called {each}")
    return {name: table[name] for name in names}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--verbena", required=True)
    parser.add_argument("--build", required=True)
    parser.add_argument("--patience", type=float, default=100, help="seconds that one program may take")
    options = parser.parse_args()
    settings = Settings(os.path.abspath(options.verbena), os.path.abspath(options.build), options.patience)
    table = chosen(options.patterns or (ALL if options.all else FEW))
    wrong, skipped = 0, 0
    with tempfile.TemporaryDirectory(prefix="vc.") as folder:
        check_instead_of_run(folder)
        for name, run in table.items():
            said = ""
            try:
                run(settings)
            except Skip as reason:
                skipped += 1
                said = f"skipped: {reason}"
            except Failure as failure:
                said = f"FAILED: {failure}"
            found = list(findings(folder))
            print(f"{name}: {said or 'passed'}" + "".join("\n" + describe(each) for each in found), flush=True)
            wrong += bool(found) or said.startswith("FAILED")
    print(f"{len(table)} cases, {skipped} skipped, {wrong} with problems")
    if wrong:
        return 1
    return 77 if skipped == len(table) else 0  # ctest's SKIP_RETURN_CODE


if __name__ == "__main__":
    sys.exit(main())
