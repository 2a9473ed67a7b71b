# SPDX-License-Identifier: BSD-2-Clause
"""A server and its client: two processes of the same stock program."""

import re

from harness import ports
from harness.failure import expect

# Error messages of these programs, whatever their exit status.
TROUBLE = re.compile(r"(?i)\b(errors?|failed|failure|failing|couldn't|unable|problems?|incompatib\w+|invalid)\b")

# `verbena run --roce` says it each time.
WARNING = re.compile(r"^verbena: RoCE v2 has no authentication: ")


def run_pair(node, program, server_options=(), client_options=(), both=(), harmless=(), prefix=()):
    """Runs `program`, behind `prefix`, as server and client; both must end with status 0 and print no errors.

    `harmless`: regular expressions of stderr lines that belong to the program and not to the device.
    """
    port = ports.reserve()
    patience = node.settings.patience
    server = node.start(*prefix, program, "-p", port, *both, *server_options, name=f"{program} (server)")
    ports.wait_listening(port, server, patience)
    client = node.start(*prefix, program, "-p", port, *both, *client_options, "127.0.0.1", name=f"{program} (client)")
    for side in (client, server):
        seen = side.wait(patience)
        expect(seen == 0, f"{side.name} ended with status {seen}")
    for side in (client, server):
        no_trouble(side, harmless)
    return server, client


def no_trouble(program, harmless=()):
    said = TROUBLE.search(program.out)
    expect(said is None, f"{program.name} speaks of trouble: '{said and said.group(0)}'")
    for line in program.err.splitlines():
        known = not line.strip() or WARNING.match(line) or any(re.search(pattern, line) for pattern in harmless)
        expect(known, f"{program.name} wrote to stderr: {line}")
