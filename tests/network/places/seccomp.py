# SPDX-License-Identifier: BSD-2-Clause
"""The filter of system calls that container engines set by default, as a program for the kernel.

The profile (JSON, one list of rules) is the engines' own file; libseccomp compiles it. Constants and structures:
<seccomp.h> of libseccomp 2.5.
"""

import ctypes
import json
import os

from harness.failure import Skip, expect

PROFILE = "/usr/share/containers/seccomp.json"  # of the package golang-github-containers-common
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
COMPARISONS = {"SCMP_CMP_NE": 1, "SCMP_CMP_LT": 2, "SCMP_CMP_LE": 3, "SCMP_CMP_EQ": 4, "SCMP_CMP_GE": 5,
               "SCMP_CMP_GT": 6, "SCMP_CMP_MASKED_EQ": 7}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class Comparison(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("one", ctypes.c_uint64),
                ("other", ctypes.c_uint64)]


def applies(rule):
    """As for a container on this machine without any capability."""
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    architecture = ARCHITECTURES.get(os.uname().machine)
    return not includes.get("caps") and architecture in (includes.get("arches") or [architecture]) \
        and architecture not in (excludes.get("arches") or [])


def write_filter(path):
    """Writes the program to `path`. Raises Skip where profile or library are missing."""
    try:
        profile = json.load(open(PROFILE))
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError as error:
        raise Skip(f"no seccomp profile of a container engine here: {error}") from None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint,
                                               ctypes.POINTER(Comparison)]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]

    def action(rule, name, errno):
        return ALLOW if rule[name] == "SCMP_ACT_ALLOW" else ERRNO | (rule.get(errno) or 1)
    default = action(profile, "defaultAction", "defaultErrnoRet")
    context = library.seccomp_init(default)
    for rule in filter(applies, profile["syscalls"]):
        compared = [Comparison(each["index"], COMPARISONS[each["op"]], each["value"], each["valueTwo"])
                    for each in rule.get("args") or []]
        wanted = action(rule, "action", "errnoRet")
        for number in map(library.seccomp_syscall_resolve_name, (name.encode() for name in rule["names"])):
            if number < 0 or wanted == default:  # not of this architecture; nothing to add
                continue
            error = library.seccomp_rule_add_array(context, wanted, number, len(compared),
                                                   (Comparison * len(compared))(*compared))
            expect(error == 0, f"libseccomp refuses a rule of the profile: {rule} ({error})")
    with open(path, "wb") as file:
        expect(library.seccomp_export_bpf(context, file.fileno()) == 0, "libseccomp cannot write the filter")
