# SPDX-License-Identifier: BSD-2-Clause
"""The machine of the measurements: no names of hosts, users or folders."""
import os
import platform
import re

from . import programs

# How each program prints its version; the first number with a dot in it counts.
_VERSIONS = {
    "perftest": ["ib_send_lat", "--version"],
    "libfabric": ["fi_info", "--version"],
    "ucx": ["ucx_info", "-v"],
}


def _cpu_model():
    try:
        with open("/proc/cpuinfo") as lines:
            for line in lines:
                if line.startswith(("model name", "Model", "cpu model")):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown"


def _version(command):
    try:
        # perftest prints its version and exits with 1.
        text = programs.alone([programs.find(command[0])] + command[1:], must_succeed=False)
    except programs.Unavailable as reason:
        return "not available: %s" % reason
    found = re.search(r"\d+\.\d[\w.+-]*", text)
    return found.group() if found else "unknown"


def describe(cpus):
    return {
        "cpu": _cpu_model(), "architecture": platform.machine(), "cores": os.cpu_count(), "pinned_to": list(cpus),
        "kernel": platform.release(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "tools": {name: _version(command) for name, command in _VERSIONS.items()},
    }


def _siblings(cpu):
    """CPUs that share a core with `cpu`, as the kernel prints the list."""
    try:
        with open("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % cpu) as text:
            return text.read().strip()
    except OSError:
        return str(cpu)


def two_cpus():
    """Two CPUs that this process may use, of different cores if there are any; fewer if there are fewer."""
    allowed = sorted(os.sched_getaffinity(0))
    first = allowed[0]
    others = [cpu for cpu in allowed[1:] if _siblings(cpu) != _siblings(first)] or allowed[1:]
    return [first] + others[:1]
