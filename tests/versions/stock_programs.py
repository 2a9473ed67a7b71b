# SPDX-License-Identifier: BSD-2-Clause
"""The cases of tests/programs with the programs of rdma-core, for one build of Verbena, with other libraries."""

import os
import subprocess
import sys

from harness.failure import Failure, expect
from harness.processes import Node
from harness.registry import Settings

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

CASES = ("ibv_devices", "ibv_rc_pingpong.gid1", "ibv_rc_pingpong.events", "ibv_rc_pingpong.size_1048576",
         "ibv_uc_pingpong.gid1", "ibv_ud_pingpong.gid1", "ibv_srq_pingpong.plain", "ibv_xsrq_pingpong.plain",
         "rping.plain", "rping.verified", "ucmatose.plain", "ucmatose.connections_50", "udaddy.plain",
         "rdma_client.plain", "rdma_xclient.rc", "rdma_xclient.xrc")


def run_case(options, name, environment):
    """None, or why the case failed."""
    done = subprocess.run(
        [sys.executable, os.path.join(TESTS, "programs", "case.py"), name, "--verbena", options.verbena, "--build",
         options.build, "--patience", str(options.patience)],
        env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    last = done.stdout.strip().splitlines()[-1:] or done.stderr.strip().splitlines()[-1:]
    return last[0] if last else f"status {done.returncode}"


def run_devinfo(settings):
    """None, or what ibv_devinfo says otherwise. Older ones have fewer lines than the case in tests/programs wants."""
    try:
        with Node(settings) as node:
            said = node.run("ibv_devinfo", "-v").out
            for line in ("hca_id:\tverbena0", "PORT_ACTIVE (4)", "max_qp:"):
                expect(line in said, f"ibv_devinfo -v does not say '{line}'")
    except Failure as failure:
        return str(failure)
    return None


def run(options, environment, more=()):
    """({case: why it failed}, cases); `more` cases than those with rdma-core's own programs."""
    settings = Settings(options.verbena, options.build, options.patience)
    failed = {name: run_case(options, name, environment) for name in (*CASES, *more)}
    before = dict(os.environ)
    os.environ.update(environment)
    failed["ibv_devinfo"] = run_devinfo(settings)
    os.environ.clear()
    os.environ.update(before)
    return {name: why for name, why in failed.items() if why}, len(failed)
