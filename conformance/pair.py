#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs a program of the suite as a pair: a server, and a client that ends first.

    conformance/pair.py PREFIX... -- verbs-conformance [OPTION...]

starts `PREFIX verbs-conformance --serve` on a free port of this machine and then `PREFIX verbs-conformance --peer
127.0.0.1:PORT OPTION...`; ends with the client's status.
"""
import re
import subprocess
import sys


def main():
    separator = len(sys.argv) - 1 - sys.argv[::-1].index("--")
    prefix = sys.argv[1:separator + 1]
    program, options = sys.argv[separator + 1], sys.argv[separator + 2:]
    server = subprocess.Popen(prefix + [program, "--serve", "--bind", "127.0.0.1", "--port-tcp", "0"],
                              stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        port = re.search(r"port (\d+)", line)
        if port is None:
            print(f"the server did not begin: {line!r}", file=sys.stderr)
            return 2
        return subprocess.run(prefix + [program, "--peer", "127.0.0.1:" + port[1]] + options).returncode
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


if __name__ == "__main__":
    sys.exit(main())
