# SPDX-License-Identifier: BSD-2-Clause
"""Runs each program of the corpus (programs/*.c) under `verbena check` twice. `wrong` breaks the rule that the program is
named after: it must be reported, and besides it at most what the program's comment "also:" names. `right` must not be
accused of anything.

usage: corpus.py VERBENA FOLDER_OF_PROGRAMS SOURCES [NAME...]
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

verbena, programs, sources = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TIMEOUT = 60
WORKERS = 4  # some programs wait for two seconds


def run(name, kind, folder):
    """(exit status, findings, stderr)"""
    report = folder / f"{name}.{kind}.json"
    command = [verbena, "check", "--node", "check", "--json", str(report)]
    rule = name.split(".")[0]
    if rule in ENABLED:
        command += ["--enable", rule]
    command += like(name)
    done = subprocess.run(command + ["--", str(programs / f"check_{name}"), kind], capture_output=True, text=True,
                          timeout=TIMEOUT, stdin=subprocess.DEVNULL, check=False)
    findings = json.loads(report.read_text())["findings"] if report.exists() else None
    return done.returncode, findings, done.stderr


def like(name):
    """The option that the program's comment "like:" names."""
    family = re.search(r"/\* like: (\w+) \*/", (sources / f"{name}.c").read_text())
    return ["--like", family.group(1)] if family else []


def check(name, folder):
    rule, problems = name.split(".")[0], []
    also = re.search(r"/\* also: (.*?) \*/", (sources / f"{name}.c").read_text())
    allowed = {rule, *(also.group(1).split() if also else [])}
    for kind in "wrong", "right":
        status, findings, stderr = run(name, kind, folder)
        found = [each["rule"] for each in findings or []]
        if status != 0 or findings is None:
            problems.append(f"{name} {kind}: exit status {status}\n{stderr}")
        elif kind == "right" and found:
            problems.append(f"{name} right: accused of {found}\n{stderr}")
        elif kind == "wrong" and (rule not in found or set(found) - allowed):
            problems.append(f"{name} wrong: found {found}, expected {sorted(allowed)}\n{stderr}")
        elif kind == "wrong":
            broken = next(each for each in findings if each["rule"] == rule)
            files = {frame.get("file", "") for call in broken["calls"] for frame in call["stack"]}
            if not any(file.endswith((f"/{name}.c", "/common.h", "/cm.h")) for file in files):
                problems.append(f"{name} wrong: no stack leads to its source: {sorted(files)}\n{stderr}")
            innermost = {pathlib.Path(call["stack"][0]["module"]).name for call in broken["calls"] if call["stack"]}
            if innermost & {"libverbena-provider.so", "libverbena-check.so"}:
                problems.append(f"{name} wrong: a stack begins in the adapter: {sorted(innermost)}\n{stderr}")
    return problems


listed = subprocess.run([verbena, "check", "--list"], capture_output=True, text=True, check=True).stdout
RULES = re.findall(r"^  ([a-z0-9-]+) \(", listed, re.M)
ENABLED = re.findall(r"^  ([a-z0-9-]+) \([a-z]+, with --enable only\)", listed, re.M)

names = sorted(file.stem for file in sources.glob("*.c"))
names = [name for name in names if len(sys.argv) == 4 or name in sys.argv[4:]]
with tempfile.TemporaryDirectory() as folder:
    os.environ["TMPDIR"] = folder  # nodes of this run alone
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(lambda name: check(name, pathlib.Path(folder)), names))
problems = [problem for result in results for problem in result]
unknown = [name for name in names if name.split(".")[0] not in RULES]
if unknown:
    problems.append(f"no rules: {unknown}")
print("\n".join(problems))
print(f"{len(names)} programs, wrong and right, {len(problems)} problems; {len(RULES)} rules, without a program: "
      f"{sorted(set(RULES) - {name.split('.')[0] for name in names})}")
sys.exit(bool(problems) or not names)
