# SPDX-License-Identifier: BSD-2-Clause
"""The table of all cases. A case is a function that takes Settings and raises Failure."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
    verbena: str  # the command of the build under test
    build: str  # its build folder
    patience: float  # seconds that one program may take
    sources: str = ""  # the folder of tests/programs/from_sources


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    run: object
    extent: str  # "quick": also in the sanitised run; "long": only in `./test.sh all`; "full" (docs/TESTING.md);
    # "nightly": not in ctest (tests/programs/nightly); "source": neither (tests/programs/from_sources)
    processors: int  # processors that it keeps busy: two programs that poll need two
    source: str = ""  # the source tree that it needs


CASES = {}


def add(name, run, quick=False, processors=2, long=False, nightly=False, source=""):
    assert name not in CASES, name
    extent = "quick" if quick else "long" if long else "nightly" if nightly else "source" if source else "full"
    CASES[name] = Case(name, run, extent, processors, source)


def case(name, quick=False, processors=2):
    def register(function):
        add(name, function, quick, processors)
        return function
    return register
