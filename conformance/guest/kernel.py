# SPDX-License-Identifier: BSD-2-Clause
"""The guest's kernel: unpacked from the distribution's package, nothing is installed."""

import gzip
import lzma
import os
import pathlib
import re
import subprocess

META_PACKAGE = "linux-image-amd64"


class Unavailable(Exception):
    """Why the guest cannot be made here."""


class Kernel:
    def __init__(self, tree: pathlib.Path):
        images = sorted(tree.glob("boot/vmlinuz-*"))
        if not images:
            raise Unavailable(f"{tree}: no boot/vmlinuz-* in it")
        self.compressed = images[-1]
        self.release = self.compressed.name.removeprefix("vmlinuz-")
        self.modules = tree / "lib/modules" / self.release
        if not self.modules.is_dir():
            self.modules = tree / "usr/lib/modules" / self.release
        self._paths = {path.name.split(".ko")[0].replace("-", "_"): path
                       for path in self.modules.rglob("*.ko*")}
        builtin = self.modules / "modules.builtin"
        self._builtin = set()
        if builtin.exists():
            self._builtin = {pathlib.Path(line).stem.replace("-", "_") for line in builtin.read_text().split()}

    def in_order(self, wanted):
        """The files of the named modules, and of all that they need, dependencies first. Unknown names are left out:
        another kernel may have them built in, or not at all."""
        order = []

        def add(name):
            path = self._paths.get(name)
            if path is None or path in order:
                return
            for other in needed_by(path):
                add(other)
            if path not in order:
                order.append(path)

        for name in wanted:
            add(name)
        return order

    def has(self, name):
        return name in self._paths or name in self._builtin

    def uncompressed(self, folder: pathlib.Path):
        """The ELF image inside: without hardware virtualisation, unpacking it would take most of the boot time."""
        target = folder / f"vmlinux-{self.release}"
        if not target.exists():
            image = payload_of(self.compressed.read_bytes())
            if image is None:
                return self.compressed
            target.write_bytes(image)
        return target


def read_module(path: pathlib.Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "-dc", path], check=True, stdout=subprocess.PIPE).stdout
    return data


def needed_by(path: pathlib.Path):
    """The dependencies that the module itself names: depends= in its .modinfo (depmod(8) reads the same)."""
    found = re.search(rb"\0depends=([^\0]*)\0", read_module(path))
    return [name.replace("-", "_") for name in found.group(1).decode().split(",") if name] if found else []


def payload_of(image: bytes):
    """Unpacks a bzImage; the formats and their marks are those of the kernel's scripts/extract-vmlinux."""
    for mark, unpack in ((b"\x1f\x8b\x08", lambda data: gzip_stream(data)),
                         (b"\xfd7zXZ\0", lambda data: lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(data))):
        start = image.find(mark)
        while start != -1:
            try:
                unpacked = unpack(image[start:])
            except (lzma.LZMAError, OSError, EOFError, ValueError):
                unpacked = b""
            if unpacked[:4] == b"\x7fELF":
                return unpacked
            start = image.find(mark, start + 1)
    return None


def gzip_stream(data: bytes) -> bytes:
    import zlib
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(data)
    except zlib.error as error:
        raise ValueError(error) from error


def run(*command, cwd=None) -> str:
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def from_package(cache: pathlib.Path) -> Kernel:
    """Downloads and unpacks the package of the distribution's newest kernel, unless it is in the cache. No root."""
    depends = run("apt-cache", "depends", "--no-recommends", "--no-suggests", META_PACKAGE)
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if not found:
        raise Unavailable(f"{META_PACKAGE}: this distribution has no such package; name a tree with --kernel")
    tree = cache / found.group(1)
    if not (tree / "boot").is_dir():
        run("apt-get", "download", "-q", found.group(1), cwd=cache)
        archive = sorted(cache.glob(f"{found.group(1)}_*.deb"))[-1]
        half = cache / f"{found.group(1)}.{os.getpid()}"
        run("dpkg-deb", "-x", archive, half)
        half.rename(tree)
        archive.unlink()
    return Kernel(tree)
