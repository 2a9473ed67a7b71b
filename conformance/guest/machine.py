# SPDX-License-Identifier: BSD-2-Clause
"""The virtual machine: started, its console read, ended when its time is over."""

import os
import re
import selectors
import subprocess
import sys
import time

from kernel import Unavailable


def command(emulator, image, accel, memory, arguments):
    # microvm would boot faster, but has no disk that every kernel supports.
    return [str(emulator), "-machine", f"q35,accel={accel}", "-cpu", "host" if accel == "kvm" else "max", "-smp", "2",
            "-m", memory, "-kernel", str(image), "-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot",
            "-nodefaults", *arguments]


def boots_with_kvm(emulator, image, folder) -> bool:
    """A /dev/kvm that can be opened may still not run a guest: only a kernel that prints something is proof."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    try:
        process = subprocess.Popen(command(emulator, image, "kvm", "512M", ["-append", "console=ttyS0 panic=-1"]),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return False
    try:
        return any(b"Linux version" in line for line in lines(process, time.monotonic() + 10))
    finally:
        process.kill()
        process.wait()


def lines(process, deadline):
    """The lines of the machine's console, until it ends or the time is over (then TimeoutError)."""
    selector = selectors.DefaultSelector()
    selector.register(process.stdout, selectors.EVENT_READ)
    rest = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        if not selector.select(left):
            continue
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            if rest:
                yield rest
            return
        *whole, rest = re.split(rb"\r*\n", rest + data)
        yield from whole


def run(emulator, image, initrd, disk, accel, memory, timeout) -> int:
    """The suite's exit status, from the guest's console."""
    # no_timer_check and what follows: a guest that is not scheduled for a while is not broken.
    arguments = ["-initrd", str(initrd), "-drive", f"file={disk},format=raw,if=virtio",
                 "-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check nowatchdog "
                            "rcupdate.rcu_cpu_stall_suppress=1"]
    deadline = time.monotonic() + timeout
    process = subprocess.Popen(command(emulator, image, accel, memory, arguments), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE)
    status = None
    began = False
    try:
        for line in lines(process, deadline):
            text = line.decode(errors="replace")
            began = began or text.startswith("GUEST: Linux")
            told = re.match(r"GUEST: status (\d+)", text)
            if told:
                status = int(told.group(1))
            elif not re.match(r"\[ *\d+\.\d+\] reboot:", text):
                print(text, flush=True)
    finally:
        process.kill()
        process.wait()
    if status is None:
        if time.monotonic() >= deadline:
            print(f"the guest was ended after {timeout:g} s", file=sys.stderr)
            return 2
        if began:  # then the cause is not this machine
            print("the guest ended before the suite did: see what it said above", file=sys.stderr)
            return 2
        raise Unavailable("the guest did not start: see what it said above")
    return status
