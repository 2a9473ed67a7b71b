# SPDX-License-Identifier: BSD-2-Clause
"""The table of groups and their rows. One group is one test: its rows run one after another on the same hosts."""

import dataclasses

BOTH = ("namespaces", "loopback")


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    run: object  # a function of the hosts
    quick: bool  # ctest runs it; the others are for run.py without --quick


@dataclasses.dataclass
class Group:
    name: str
    hosts: int = 2
    places: tuple = BOTH
    processors: int = 2
    needs_network: bool = True  # of `verbena run`
    ipv6: bool = False  # the nodes have IPv6 addresses alone; in namespaces only
    roce: bool = False  # the nodes speak RoCE v2 (`verbena run --roce`)
    rows: list = dataclasses.field(default_factory=list)

    def add(self, name, run, quick=True):
        assert all(row.name != name for row in self.rows), name
        self.rows.append(Row(name, run, quick))

    def row(self, name, quick=True):
        def register(function):
            self.add(name, function, quick)
            return function
        return register


GROUPS = {}


def group(name, **more):
    assert name not in GROUPS, name
    GROUPS[name] = Group(name, **more)
    return GROUPS[name]
