#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""What of docker/ can be judged without an engine: the entry script's words, and that the files name what there is."""

import os
import re
import subprocess
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKOUT = os.path.dirname(HERE)


def read(name):
    with open(os.path.join(HERE, name)) as file:
        return file.read()


class Entry(unittest.TestCase):
    """With a `verbena` that prints what it is given."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="ve.")
        self.folder = self._folder.name
        self.addCleanup(self._folder.cleanup)
        fake = os.path.join(self.folder, "verbena")
        with open(fake, "w") as file:
            file.write('#!/bin/sh\nfor word; do echo "$word"; done\n')
        os.chmod(fake, 0o755)

    def words(self, *command, status=0, **variables):
        environment = {"PATH": f"{self.folder}:{os.environ['PATH']}", "TMPDIR": self.folder, **variables}
        done = subprocess.run([os.path.join(HERE, "entry"), *command], env=environment, capture_output=True, text=True,
                              timeout=30)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout.splitlines()

    def test_nothing_listens_unless_asked(self):
        self.assertEqual(self.words("prog", "-a", "b c"), ["run", "--", "prog", "-a", "b c"])

    def test_addresses(self):
        self.assertEqual(self.words("prog", VERBENA_IP="10.0.0.1,10.0.0.2 fd00::1"),
                         ["run", "--ip", "10.0.0.1", "--ip", "10.0.0.2", "--ip", "fd00::1", "--", "prog"])

    def test_whole_network_and_port(self):
        self.assertEqual(self.words("prog", VERBENA_NET="1", VERBENA_PORT="47911"),
                         ["run", "--net", "--port", "47911", "--", "prog"])

    def test_roce(self):
        self.assertEqual(self.words("prog", VERBENA_ROCE="10.0.0.1 fd00::1", VERBENA_PEERS="10.0.0.0/24,fd00::/64"),
                         ["run", "--roce", "10.0.0.1", "--roce", "fd00::1", "--peers", "10.0.0.0/24,fd00::/64", "--",
                          "prog"])

    def test_roce_by_own_name(self):
        own = os.path.join(self.folder, "hostname")
        with open(own, "w") as file:
            file.write('#!/bin/sh\n[ "$1" = -i ] && echo 172.18.0.2\n')
        os.chmod(own, 0o755)
        self.assertEqual(self.words("prog", VERBENA_ROCE="1"), ["run", "--roce", "172.18.0.2", "--", "prog"])

    def test_other_options(self):
        self.assertEqual(self.words("prog", VERBENA_OPTIONS="--devices 2"), ["run", "--devices", "2", "--", "prog"])

    def test_wrong_switch_is_refused(self):
        self.words("prog", status=2, VERBENA_NET="yes")

    def test_key_becomes_private(self):
        key = os.path.join(self.folder, "secret")
        with open(key, "w") as file:
            file.write("0123\n")
        os.chmod(key, 0o444)
        words = self.words("prog", VERBENA_KEY_FILE=key)
        self.assertEqual([words[0], words[1], words[3:]], ["run", "--key", ["--", "prog"]])
        self.assertEqual(os.stat(words[2]).st_mode & 0o777, 0o600)
        with open(words[2]) as file:
            self.assertEqual(file.read(), "0123\n")

    def test_key_that_is_not_there_is_refused(self):
        self.words("prog", status=2, VERBENA_KEY_FILE="/nonexistent")

    def test_the_command_itself(self):
        self.assertEqual(self.words("verbena", "key", "file", VERBENA_NET="1"), ["key", "file"])


class Dockerfile(unittest.TestCase):
    lines = re.sub(r"\\\n", " ", read("Dockerfile")).splitlines()

    def instructions(self, name):
        return [line.split()[1:] for line in self.lines if line.startswith(name + " ")]

    def test_stages(self):
        self.assertEqual([words[1:] for words in self.instructions("FROM")],
                         [["AS", "builder"], ["AS", "runtime"], ["AS", "devel"], ["AS", "rxe"], []])

    def test_copies_what_there_is(self):
        stages = [words[2] for words in self.instructions("FROM") if len(words) > 2]
        for words in self.instructions("COPY"):
            if words[0].startswith("--from="):
                self.assertIn(words[0].removeprefix("--from="), stages)
            else:
                for word in words[:-1]:
                    self.assertTrue(os.path.exists(os.path.join(CHECKOUT, word)), words)

    def test_installs_scripts_that_there_are(self):
        for name in re.findall(r"/source/(docker/\w+|scripts/[\w.-]+) ", "\n".join(self.lines)):
            self.assertTrue(os.access(os.path.join(CHECKOUT, name), os.X_OK), name)

    def test_user_is_not_root(self):
        self.assertEqual(self.instructions("USER"), [["verbena"], ["root"], ["verbena"], ["root"]])
        self.assertEqual(self.lines[-1], "FROM runtime")  # the image by default


class Orchestration(unittest.TestCase):
    def documents(self, name):
        return list(yaml.safe_load_all(read(name)))

    def test_compose(self):
        services = self.documents("compose.yaml")[0]["services"]
        # A container that ends early may end all: compose up --abort-on-container-exit.
        self.assertEqual(sorted(services), ["client", "server"])
        self.assertEqual(services["client"]["depends_on"]["server"]["condition"], "service_healthy")
        self.assertIn("$$VERBENA_KEY_FILE", services["server"]["healthcheck"]["test"][-1])
        for service in services.values():
            self.assertEqual(service["build"]["target"], "devel")
            self.assertTrue(os.path.exists(os.path.join(HERE, service["build"]["context"],
                                                        service["build"]["dockerfile"])))
            self.assertNotIn("privileged", service)

    def test_compose_with_roce(self):
        services = self.documents("compose-roce.yaml")[0]["services"]
        self.assertEqual(sorted(services), ["client", "server"])
        for service in services.values():
            self.assertEqual(service["build"]["target"], "devel")
            self.assertTrue(os.path.exists(os.path.join(HERE, service["build"]["context"],
                                                        service["build"]["dockerfile"])))
            self.assertEqual(service["environment"]["VERBENA_ROCE"], "1")
            self.assertNotIn("ports", service)  # published ports translate addresses
            self.assertNotIn("privileged", service)

    def test_compose_with_rxe(self):
        services = self.documents("compose-roce-vm.yaml")[0]["services"]
        self.assertEqual({name: each["build"]["target"] for name, each in services.items()}, {"rxe": "rxe", "verbena": "devel"})
        self.assertEqual(services["verbena"]["command"], ["verbena-pair", "client", "rxe", "rxe"])
        self.assertEqual(services["rxe"]["cap_add"], ["NET_ADMIN"])
        for service in services.values():
            self.assertEqual(service["cap_drop"], ["ALL"])
            self.assertNotIn("ports", service)
            self.assertNotIn("privileged", service)

    def test_kubernetes(self):
        documents = self.documents("kubernetes.yaml")
        self.assertEqual([each["kind"] for each in documents], ["Service", "Pod", "Job"])
        pods = [documents[1]["spec"], documents[2]["spec"]["template"]["spec"]]
        for pod in pods:
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            volumes = {volume["name"] for volume in pod["volumes"]}
            for container in pod["containers"]:
                self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
                self.assertEqual(container["args"][0], "verbena-pair")


if __name__ == "__main__":
    unittest.main()
