# SPDX-License-Identifier: BSD-2-Clause
"""What is in which package, and what each one needs."""

import pathlib
import re
import tempfile
import unittest

from made import BUILD, DEBS, SOURCE, VERSION, deb, run


def field(name, package):
    return run("dpkg-deb", "--field", deb(package), name).stdout.strip()


def files(package):
    """The paths of the files, without the leading dot, and their `tar -tv` lines."""
    lines = run("dpkg-deb", "--contents", deb(package)).stdout.splitlines()
    return {line.split(None, 5)[5].split(" -> ")[0].lstrip("."): line for line in lines if not line.startswith("d")}


class Contents(unittest.TestCase):
    def test_each_package_says_what_it_is(self):
        for package in DEBS:
            self.assertEqual(field("Package", package), package)
            self.assertEqual(field("Version", package), VERSION)
            self.assertGreater(len(field("Description", package).splitlines()), 1)
        own = run("dpkg", "--print-architecture").stdout.strip()
        self.assertEqual([field("Architecture", package) for package in DEBS], [own, "all", own])

    def test_the_command_needs_libc_and_libibverbs_alone(self):
        """No C++ runtime and no fmt of one version of a distribution."""
        names = {re.match(r"\S+", word).group() for word in field("Depends", "verbena").split(", ")}
        self.assertEqual(names, {"libc6", "libibverbs1"})
        self.assertIn("ibverbs-utils", field("Recommends", "verbena"))
        names = {re.match(r"\S+", word).group() for word in field("Depends", "verbs-conformance").split(", ")}
        self.assertEqual(names, {"libc6", "libibverbs1", "librdmacm1"})

    def test_nothing_needs_a_newer_libc_than_it_uses(self):
        """std::random_device, which nobody calls, would want the arc4random(3) of glibc 2.36."""
        with tempfile.TemporaryDirectory() as folder:
            for package in ("verbena", "verbs-conformance"):
                run("dpkg-deb", "-x", deb(package), folder)
            programs = [*pathlib.Path(folder, "usr/bin").iterdir(), *pathlib.Path(folder, "usr/lib/verbena").glob("*.so")]
            self.assertGreater(len(programs), 3)
            for program in programs:
                self.assertNotIn("arc4random", run("objdump", "-T", program).stdout, program.name)

    def test_every_file_is_in_one_package(self):
        expected = {
            "verbena": ["/usr/bin/verbena", "/usr/lib/verbena/libverbena-preload.so",
                        "/usr/lib/verbena/libverbena-rdmav34.so", "/usr/share/verbena/profiles/minimal.toml",
                        "/usr/share/verbena/gdb/verbena.py", "/usr/share/verbena/leaks.supp",
                        "/usr/lib/verbena/libverbena-check.so", "/usr/share/verbena/check.supp",
                        "/usr/share/verbena/extcap/verbena"],
            "verbs-conformance": ["/usr/bin/verbs-conformance"],
            "verbena-dev": ["/usr/include/verbena/vendor_errors.h", "/usr/share/cmake/verbena/verbena-config.cmake",
                            "/usr/share/pkgconfig/verbena.pc"],
        }
        seen = {}
        for package in DEBS:
            names = files(package)
            for name in (*expected[package], f"/usr/share/doc/{package}/copyright"):
                self.assertIn(name, names)
            for name in names:
                self.assertNotIn(name, seen, "in two packages")
                seen[name] = package

    def test_files_belong_to_root_and_are_readable(self):
        for package in DEBS:
            for name, line in files(package).items():
                mode, owner = line.split()[:2]
                self.assertEqual(owner, "root/root", name)
                # A link's own mode is rwxrwxrwx on Linux, and nothing looks at it.
                self.assertRegex(mode, r"^(-rw[-x]r-[-x]r-[-x]|lrwxrwxrwx)$", name)

    def test_nothing_names_the_folders_of_the_build(self):
        with tempfile.TemporaryDirectory() as folder:
            for package in DEBS:
                run("dpkg-deb", "-R", deb(package), f"{folder}/{package}")
            for file in (path for path in pathlib.Path(folder).rglob("*") if path.is_file()):
                content = file.read_bytes()
                for place in (SOURCE, BUILD):
                    self.assertNotIn(str(place).encode(), content, file)
