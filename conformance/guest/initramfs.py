# SPDX-License-Identifier: BSD-2-Clause
"""The guest's file system: an initramfs of the host's own programs and libraries, made without root."""

import gzip
import os
import pathlib
import re
import stat
import subprocess

from kernel import Unavailable


class Archive:
    """A cpio archive in the "newc" form, as the kernel unpacks it (Documentation/driver-api/early-userspace/
    buffer-format.rst)."""

    def __init__(self):
        self._parts = []
        self._names = set()
        self._inode = 0

    def _add(self, name, mode, data=b"", device=(0, 0)):
        self._names.add(name)
        self._inode += 1
        encoded = name.encode() + b"\0"
        fields = (self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        self._parts += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]

    def folder(self, path):
        path = path.strip("/")
        if not path or path in self._names:
            return
        self.folder(os.path.dirname(path))
        self._add(path, stat.S_IFDIR | 0o755)

    def file(self, path, data, mode=0o644):
        path = path.strip("/")
        if path in self._names:
            return
        self.folder(os.path.dirname(path))
        self._add(path, stat.S_IFREG | mode, data)

    def link(self, path, target):
        path = path.strip("/")
        self.folder(os.path.dirname(path))
        self._add(path, stat.S_IFLNK | 0o777, target.encode())

    def console(self):
        """init has no output without one."""
        self.folder("dev")
        self._add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))

    def has(self, path):
        return path.strip("/") in self._names

    def write(self, path: pathlib.Path):
        self._add("TRAILER!!!", 0)
        with gzip.open(path, "wb", compresslevel=1) as out:
            for part in self._parts:
                out.write(part)


def libraries_of(program):
    """The files that ldd(1) names."""
    listed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return re.findall(r"(?:=> |^\s*)(/\S+) \(0x", listed, re.MULTILINE)


def add_program(archive, program, at=None):
    source = pathlib.Path(program)
    archive.file(at or str(source), source.read_bytes(), 0o755)
    for library in libraries_of(source):
        if not archive.has(library):
            archive.file(library, pathlib.Path(library).read_bytes(), 0o755)


def find_program(name, package):
    for folder in os.environ.get("PATH", "").split(":") + ["/usr/sbin", "/sbin", "/usr/bin", "/bin"]:
        path = pathlib.Path(folder or ".") / name
        if path.is_file() and os.access(path, os.X_OK):
            return path.resolve()
    raise Unavailable(f"{name} is not here: install the package {package}")


def add_drivers(archive):
    """libibverbs finds its drivers through /etc/libibverbs.d and loads them from its own folder."""
    for config in pathlib.Path("/etc/libibverbs.d").glob("*.driver"):
        if config.stem in ("rxe", "siw"):
            archive.file(str(config), config.read_bytes())
    found = False
    for folder in pathlib.Path("/usr/lib").glob("*/libibverbs"):
        for driver in folder.glob("*.so"):
            if re.match(r"lib(rxe|siw)-rdmav", driver.name):
                add_program(archive, driver)
                found = True
    if not found:
        raise Unavailable("libibverbs has no rxe or siw driver here: install the package ibverbs-providers")
