# SPDX-License-Identifier: BSD-2-Clause
"""A guest with the kernel's rxe that runs an init script of its own, by means of conformance/guest. No root."""

import os
import pathlib
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "conformance/guest"))
import initramfs
import kernel
import machine

MODULES = ("virtio_pci", "virtio_blk", "veth", "crc32_generic", "ib_uverbs", "rdma_ucm", "rdma_rxe")
Unavailable = kernel.Unavailable


def program(name, package):
    return initramfs.find_program(name, package)


def add_verbena(archive, command):
    """The command, and its libraries beside it."""
    initramfs.add_program(archive, command, "/usr/bin/verbena")
    for library in (command.parents[1] / "lib/verbena").glob("*.so"):
        if library.is_symlink():
            archive.link(f"/usr/lib/verbena/{library.name}", str(library.readlink()))
        else:
            initramfs.add_program(archive, library, f"/usr/lib/verbena/{library.name}")


def run(init, programs, modules=(), timeout=600, keep=None, verbena=None, files=(), memory="1G", plugins=()):
    """Boots, and runs `init` with `programs` (paths) in /usr/bin, `files` in /guest, and `verbena`, the command, if it is
    given. `plugins`: libraries that programs load by name; they are where they are here. Returns the release of the kernel, the exit status that
    init has printed, and the content of the file `keep` of the tar archive that init left on /dev/vda."""
    cache = pathlib.Path("~/.cache/verbena-guest").expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    the_kernel = kernel.from_package(cache)
    archive = initramfs.Archive()
    archive.console()
    archive.file("init", init.read_bytes(), 0o755)
    archive.file("bin/busybox", program("busybox", "busybox-static").read_bytes(), 0o755)
    for path in programs:
        initramfs.add_program(archive, path, f"/usr/bin/{path.name}")
    for path in plugins:
        initramfs.add_program(archive, path, str(path))
    if verbena:
        add_verbena(archive, verbena)
    for path in files:
        archive.file(f"guest/{path.name}", path.read_bytes())
    # pthread_exit(3) loads it, so ldd does not name it.
    for library in pathlib.Path("/lib").glob("*-linux-gnu/libgcc_s.so.1"):
        if not archive.has(str(library)):
            archive.file(str(library), library.read_bytes(), 0o755)
    initramfs.add_drivers(archive)
    archive.file("etc/hosts", b"127.0.0.1 localhost\n")
    archive.file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\ntcpdump:x:1:1::/:/bin/sh\n")
    archive.file("etc/group", b"root:x:0:\ntcpdump:x:1:\n")
    drivers = []
    for path in the_kernel.in_order(MODULES + tuple(modules)):
        name = f"/guest/{path.name.split('.ko')[0]}.ko"
        archive.file(name, kernel.read_module(path))
        drivers.append(name)
    archive.file("guest/modules", "".join(f"{name}\n" for name in drivers).encode())
    image = the_kernel.uncompressed(cache)
    emulator = program("qemu-system-x86_64", "qemu-system-x86")
    with tempfile.TemporaryDirectory(prefix="verbena-guest.") as folder:
        folder = pathlib.Path(folder)
        archive.write(folder / "initramfs")
        disk = folder / "disk"
        with open(disk, "wb") as file:
            file.truncate(16 << 20)
        accel = "kvm" if machine.boots_with_kvm(emulator, image, folder) else "tcg"
        status = machine.run(emulator, image, folder / "initramfs", disk, accel, memory, timeout)
        kept = None
        if keep:
            with tarfile.open(disk) as left:
                kept = left.extractfile(keep).read()
    return the_kernel.release, status, kept
