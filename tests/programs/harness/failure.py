# SPDX-License-Identifier: BSD-2-Clause
"""How a case reports a failure."""


class Failure(Exception):
    """One sentence: what was expected and what was seen."""


class Skip(Exception):
    """This machine cannot run the case; the sentence says why."""


def expect(condition, sentence):
    if not condition:
        raise Failure(sentence)
