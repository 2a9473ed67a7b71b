#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs the pyverbs suite that the distribution's package python3-pyverbs ships, over verbena0, and compares.

  run_pyverbs.py --list                                             the modules, one per line
  run_pyverbs.py MODULE --verbena build/release/bin/verbena         exit status 0: every test of the module did what
                                                                pyverbs.expected says, 1: not so, 77: cannot run here
  run_pyverbs.py modules ...                                        whether every module of the suite has its place here
  run_pyverbs.py MODULE --propose ...                               prints the module's lines for pyverbs.expected
"""

import argparse
import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "programs")]
sys.dont_write_bytecode = True

import expectations  # noqa: E402
import suite  # noqa: E402
from harness.failure import Failure, Skip, expect  # noqa: E402
from harness.processes import Node  # noqa: E402
from harness.registry import Settings  # noqa: E402

SKIPPED = 77
PYTHON = "/usr/bin/python3"  # the one python3-pyverbs is for
DEVICE = "verbena0"

GENERIC = """test_addr test_atomic test_cq test_cq_events test_cqex test_cuda_dmabuf test_device test_flow test_fork
             test_mr test_odp test_parent_domain test_pd test_qp test_qpex test_rdmacm test_relaxed_ordering
             test_rss_traffic test_shared_pd test_tag_matching""".split()
LATER = {"test_srq": 50}  # module: the version of rdma-core that has it, as seen
VENDORS = ("test_mlx5_", "test_efa")  # tests of private interfaces


def modules():
    """The modules of the installed suite."""
    return sorted(GENERIC + [module for module, since in LATER.items() if since <= suite.version()])


class Lines:
    """What a child has reported so far."""

    def __init__(self, path):
        self._path = path
        self._read = 0
        self.running = None
        self.ended = {}

    def update(self):
        """Reads what is new; False: nothing. A line that is only half written waits."""
        with open(self._path) as file:
            file.seek(self._read)
            text = file.read()
        text = text[: text.rfind("\n") + 1]
        self._read += len(text)
        for line in text.splitlines():
            line = json.loads(line)
            if "begin" in line:
                self.running = line["begin"]
            else:
                self.ended[line["end"]] = (line["outcome"], line["text"])
                self.running = None
        return bool(text)


def run_module(settings, folder, module):
    """{test: (outcome, text)}. A crash or a hang is an outcome of its own; the tests after it still run."""
    report, done = os.path.join(folder, "report"), os.path.join(folder, "done")
    open(report, "w").close()
    lines = Lines(report)
    while True:
        with open(done, "w") as file:
            file.write("\n".join(lines.ended))
        with Node(settings) as node:
            child = node.start(PYTHON, os.path.join(HERE, "run_module.py"), os.path.join(folder, "tests"), module,
                               DEVICE, report, done, name=module)
            end = watch(child, lines, settings.patience)
            said = child.err
        if end == 0:
            return lines.ended
        if lines.running is None:
            raise Failure(f"{module} {words(end)} outside of any test\n{said}")
        lines.ended[lines.running] = (words(end), said)
        lines.running = None


def watch(child, lines, patience):
    """The child's exit status, or None if one test took longer than `patience` seconds: then it is killed."""
    deadline = time.monotonic() + patience
    while True:
        status = child.poll()
        if lines.update():
            deadline = time.monotonic() + patience
        if status is not None:
            lines.update()
            return status
        if time.monotonic() > deadline:
            child.kill()
            return None
        time.sleep(0.01)


def words(end):
    if end is None:
        return "hang"
    return f"crash, signal {-end}" if end < 0 else f"crash, status {end}"


def check_modules(folder):
    expect(sorted(GENERIC) == GENERIC, "the list of modules is not sorted")
    found = [name for name in suite.modules(os.path.join(folder, "tests")) if not name.startswith(VENDORS)]
    unknown = sorted(set(found) ^ set(modules()))
    expect(not unknown, f"modules that are in the suite or in run_pyverbs.py alone: {' '.join(unknown)}")
    strays = sorted({test.split(".")[0] for test in expectations.read(suite.version())} - set(modules()))
    expect(not strays, f"pyverbs.expected names tests of modules that nobody runs: {' '.join(strays)}")


def propose(module, seen):
    known = expectations.read(suite.version(), module)
    for test, (outcome, text) in seen.items():
        wanted, reason = known.get(test, ("", ""))
        if wanted == "maybe" and outcome in ("pass", "skip") or wanted == outcome:
            print(f"{test}, {wanted}: {reason}")
        elif outcome != "pass":
            print(f"{test}, {outcome}: {text.strip().splitlines()[-1] if text.strip() else '?'}")


def count(seen):
    outcomes = [outcome for outcome, _ in seen.values()]
    return ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes)))


def run(options):
    settings = Settings(options.verbena, options.build, options.patience)
    with tempfile.TemporaryDirectory(prefix="verbena-pyverbs.") as folder:
        suite.unpack(os.path.join(folder, "tests"), options.build)
        if options.module == "modules":
            return check_modules(folder)
        seen = run_module(settings, folder, options.module)
        if options.propose:
            return propose(options.module, seen)
        print(f"{options.module}: {count(seen)}")
        different = list(expectations.differences(expectations.read(suite.version(), options.module), seen))
        expect(not different, "not as expected:\n" + "\n".join(different))
        expect(seen, f"{options.module} has no tests")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", nargs="?", choices=["modules", *modules()], metavar="MODULE")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--propose", action="store_true")
    parser.add_argument("--verbena", default="verbena")
    parser.add_argument("--build", default=tempfile.gettempdir(), help="where a downloaded package is kept")
    parser.add_argument("--patience", type=float, default=60, help="seconds that one test may take")
    options = parser.parse_args()
    if options.list:
        print("\n".join(["modules", *modules()]))
        return 0
    if not options.module:
        parser.error("which module?")
    try:
        run(options)
    except Skip as reason:
        print(f"SKIPPED: {reason}")
        return SKIPPED
    except Failure as failure:
        print(f"FAILED: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
