# SPDX-License-Identifier: BSD-2-Clause
"""pyverbs.expected: which tests of the suite do not pass, and why. Whatever it does not name passes.

One line per test: `test, outcome: reason`, where the outcome is skip (the test says that it cannot run), fail, or
maybe (it passes or is skipped, depending on the machine); `skip since 50` where suites before rdma-core 50 do not have
the test, as far as is known. Lines that begin with # are comments.
"""

import os
import re

from harness.failure import Failure

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyverbs.expected")
LINE = re.compile(r"(?P<test>\w+\.\w+\.\w+), (?P<outcome>skip|fail|maybe)( since (?P<since>\d+))?: (?P<reason>\S.*)")


def read(version, module=None):
    """{test: (outcome, reason)} of one module or of all, in the suite of rdma-core `version`."""
    expected = {}
    for number, line in enumerate(open(FILE).read().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        if not found:
            raise Failure(f"{FILE}:{number}: not of the form `test, skip|fail|maybe[ since VERSION]: reason`")
        test = found["test"]
        if test in expected:
            raise Failure(f"{FILE}:{number}: {test} stands there twice")
        if int(found["since"] or 0) <= version:
            expected[test] = (found["outcome"], found["reason"])
    if module is None:
        return expected
    return {test: entry for test, entry in expected.items() if test.split(".")[0] == module}


def differences(expected, seen):
    """Messages about what is not as expected; `seen` is {test: (outcome, text)}."""
    for test, (outcome, text) in seen.items():
        wanted, reason = expected.get(test, ("pass", ""))
        if outcome not in (("pass", "skip") if wanted == "maybe" else (wanted,)):
            because = f" (expected {wanted}: {reason})" if reason else ""
            yield f"{test}: {outcome}{because}{': ' + text.strip() if text else ''}"
    for test in expected:
        if test not in seen:
            yield f"{test}: stands in {os.path.basename(FILE)}, but the suite has no such test"
