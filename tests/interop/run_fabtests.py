#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""libfabric's own tests (fabtests) over verbena0, with the machine's libfabric.

  run_fabtests.py --sources FOLDER --build build/release      each of the providers
  run_fabtests.py ... --provider 'verbs;ofi_rxm'              one
  run_fabtests.py ... --set standard                          other sets of its tests than SETS

FOLDER has the sources of fabtests, of the version of the machine's libfabric:
  git -C LIBFABRIC archive v1.17.0 fabtests | tar x -C ABOVE
They are copied and built below BUILD. Needs libfabric-dev, autoconf, automake, libtool and a C compiler. Exit status 0:
each test of fabtests.expected ended as the file says, and all others passed or were left out by fabtests itself.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE / "fabtests.expected"
# Not "complex": fi_ubertest alone runs for some 15 minutes.
SETS = "unit,regression,functional,standard,multinode"
PROVIDERS = ("verbs", "verbs;ofi_rxm", "verbs;ofi_rxd")
PATIENCE = 120  # seconds for one test
RESULT = re.compile(r'^- name: +(?P<name>.*?)(?: -p ".*")?\n  timestamp: .*\n  result: (?P<result>\w+)', re.M)


def built(sources, build):
    """The folder of the programs, and that of the script with its lists."""
    folder = build / "interop" / "fabtests"
    source, programs = folder / "source", folder / "programs"
    if not programs.exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(sources, source)
        for command in (["./autogen.sh"], ["./configure", f"--prefix={folder / 'installed'}"],
                        ["make", f"-j{os.cpu_count()}", "install"]):
            done = subprocess.run(command, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                sys.exit(f"{' '.join(command)} in {source}:\n{done.stdout[-2000:]}")
        (folder / "installed/bin").rename(programs)
    return programs, source


def own_address():
    """libfabric's verbs provider leaves the loopback addresses out (verbs_init.c, vrb_getifaddrs)."""
    for address in subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split():
        if "." in address:
            return address
    return sys.exit("the machine has no IPv4 address but the loopback ones, which libfabric's verbs provider leaves out")


def run(options, programs, source, provider):
    """{test: result}. The script kills every fi_* process that it sees, so it gets a PID namespace of its own."""
    address = own_address()
    alone = ["unshare", *([] if os.geteuid() == 0 else ["-U", "-r"]), "-p", "-f", "--mount-proc"]
    command = [options.build / "bin/verbena", "run", "--node", "fabtests", "--", *alone, "scripts/runfabtests.sh", "-v",
               "-p", programs, "-c", address, "-s", address, "-T", str(PATIENCE), "-t", options.set, provider]
    done = subprocess.run(command, cwd=source, text=True, errors="replace", stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env={**os.environ, "FI_PROVIDER": "verbs,ofi_rxm,ofi_rxd"})
    (options.build / "interop/fabtests" / f"{provider.replace(';', '_')}.log").write_text(done.stdout)
    return {found["name"]: found["result"] for found in RESULT.finditer(done.stdout)}


def expected_of(provider):
    lines = (line.partition(": ") for line in EXPECTED.read_text().splitlines() if line and not line.startswith("#"))
    return {test.split(", ")[1]: reason for test, _, reason in lines if test.split(", ")[0] == provider}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--provider", choices=PROVIDERS)
    parser.add_argument("--set", default=SETS)
    options = parser.parse_args()
    programs, source = built(options.sources.resolve(), options.build)
    wrong = 0
    for provider in [options.provider] if options.provider else PROVIDERS:
        seen, expected = run(options, programs, source, provider), expected_of(provider)
        counts = {result: list(seen.values()).count(result) for result in sorted(set(seen.values()))}
        print(f"{provider}: {', '.join(f'{count} {result}' for result, count in counts.items()) or 'no test ran'}")
        wrong += not counts.get("Pass")
        for test, result in seen.items():
            if (result == "Fail") != (test in expected):
                because = f" (expected to fail: {expected[test]})" if test in expected else ""
                print(f"  {test}: {result}{because}")
                wrong += 1
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
