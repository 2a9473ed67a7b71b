# SPDX-License-Identifier: BSD-2-Clause
"""The examples for users, with an installed tree: find_package(verbena) and the fixture of pytest."""

import importlib.util
import pathlib
import shutil
import tempfile
import unittest

from made import SOURCE, deb, outside, run


needs_pytest = unittest.skipUnless(importlib.util.find_spec("pytest"), "no pytest (package python3-pytest)")


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for package in ("verbena", "verbena-dev"):
            run("dpkg-deb", "-x", deb(package), cls.folder)
        cls.prefix = cls.folder / "usr"
        cls.environment = outside(TMPDIR=str(cls.folder), XDG_RUNTIME_DIR="")

    def nodes(self):
        """The nodes that the examples have left."""
        return [path.name for path in self.folder.glob("verbena-*/*") if path.is_dir()]

    def test_ctest(self):
        build = self.folder / "build"
        run("cmake", "-S", SOURCE / "examples/ctest", "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", env=self.environment)
        run("cmake", "--build", build, env=self.environment)
        seen = run("ctest", "--test-dir", build, "--output-on-failure", "-j", 2, env=self.environment).stdout
        self.assertIn("100% tests passed, 0 tests failed out of 5", seen)
        run(self.prefix / "bin/verbena", "clean", "--here", env=self.environment)
        self.assertEqual(self.nodes(), [])

    def test_a_test_that_fails(self):
        """Status, output and arguments are those of the program; a shared node, one of its own, and its
        devices."""
        source = self.folder / "failing"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.22)\nproject(failing LANGUAGES NONE)\nenable_testing()\n"
            "find_package(verbena REQUIRED)\n"
            'verbena_add_test(NAME shared COMMAND sh -c "echo $VERBENA_NODE \\"$@\\"; ibv_devices; exit 3" 0 "two  words" "a;b"'
            " NODE mine DEVICES 2)\n"
            'verbena_add_test(NAME own COMMAND sh -c "echo $VERBENA_NODE; exit 3")\n')
        run("cmake", "-S", source, "-B", source / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", env=self.environment)
        seen = run("ctest", "--test-dir", source / "build", "-V", env=self.environment, check=False)
        self.assertEqual(seen.returncode, 8)
        self.assertIn("0% tests passed, 2 tests failed out of 2", seen.stdout)
        self.assertRegex(seen.stdout, r"/mine\S* two  words a;b\n")
        self.assertRegex(seen.stdout, r"verbena1\s")
        self.assertRegex(seen.stdout, r"/t[0-9a-f]{12}\.\d+\S*\n")

    def pytest(self, folder, check=True):
        environment = {**self.environment, "PYTHONPATH": str(self.prefix / "share/verbena/python"),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        return run("/usr/bin/python3", "-m", "pytest", "-v", "-p", "no:cacheprovider", folder, env=environment,
                   check=check).stdout

    @needs_pytest
    def test_pytest(self):
        seen = self.pytest(SOURCE / "examples/pytest")
        self.assertIn("4 passed", seen)
        self.assertIn("verbena-", seen.split("plugins:")[1].splitlines()[0], "found by its metadata")
        self.assertEqual(self.nodes(), [])

    @needs_pytest
    def test_what_a_pytest_leaves_behind(self):
        """Programs that still run are killed with what they have started, also after a failure, which shows what a
        program printed."""
        folder = self.folder / "leaving"
        folder.mkdir()
        (folder / "test_leaving.py").write_text(
            "def test_server(rdma_node):\n"
            "    port = rdma_node.port()\n"
            "    assert port != rdma_node.port()\n"
            "    server = rdma_node.start('sh', '-c', f'ibv_rc_pingpong -g 1 -p {port} & wait')\n"
            "    rdma_node.wait_listening(port, server)\n"
            f"    open({str(folder / 'group')!r}, 'w').write(str(server.process.pid))\n"
            "    rdma_node.run('sh', '-c', 'echo the reason; exit 7')\n")
        seen = self.pytest(folder, check=False)
        self.assertIn("1 failed", seen)
        self.assertIn("ended with status 7, not 0", seen)
        self.assertIn("the reason", seen)
        group = (folder / "group").read_text()
        listed = run("ps", "-eo", "pgid=,stat=,args=").stdout.splitlines()
        self.assertEqual([line for line in listed if line.split()[0] == group and line.split()[1][0] not in "ZX"], [])
        self.assertEqual(self.nodes(), [])

    def test_the_path_of_the_python_of_the_distribution(self):
        """verbena.pth leads to the plugin."""
        packages = self.prefix / "lib/python3/dist-packages"
        code = f"import site; site.addsitedir({str(packages)!r}); import importlib.metadata as m; print(m.version('pytest-verbena'))"
        self.assertTrue(run("/usr/bin/python3", "-c", code, env=self.environment).stdout.strip())
