#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Ordinary socket programs over rsockets: librspreload.so in a server and a client written for plain sockets.

    preload.py --verbena build/release/bin/verbena
"""

import argparse
import glob
import os
import subprocess
import sys

SERVER = """
import hashlib, socket, sys
listener = socket.socket()
listener.bind((sys.argv[1], 0))
listener.listen(1)
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
digest, size = hashlib.sha256(), 0
while chunk := peer.recv(1 << 20):
    digest.update(chunk)
    size += len(chunk)
peer.sendall(f"{size} {digest.hexdigest()}".encode())
peer.shutdown(socket.SHUT_WR)
peer.close()
"""

CLIENT = """
import hashlib, random, socket, sys
data = random.Random(4).randbytes(20_000_000)
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
peer.sendall(data)
peer.shutdown(socket.SHUT_WR)
answer = b""
while chunk := peer.recv(4096):
    answer += chunk
expected = f"{len(data)} {hashlib.sha256(data).hexdigest()}"
sys.exit(0 if answer.decode() == expected else f"answer {answer!r}, expected {expected!r}")
"""

ADDRESS = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.99', 9)); print(s.getsockname()[0])"


def own_address():
    """An address of a device of this machine; the loopback's where there is no other."""
    seen = subprocess.run([sys.executable, "-c", ADDRESS], capture_output=True, text=True)
    return seen.stdout.strip() or "127.0.0.1"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verbena", required=True)
    verbena = parser.parse_args().verbena
    found = sorted(glob.glob("/usr/lib/*/rsocket/librspreload.so*") + glob.glob("/usr/lib*/rsocket/librspreload.so*"))
    if not found:
        print("no librspreload.so on this machine")
        return 77
    environment = dict(os.environ, LD_PRELOAD=found[0], RDMAV_FORK_SAFE="1")

    def start(program, *arguments, **more):
        command = [verbena, "run", "--node", "rsockets-preload", "--", sys.executable, "-c", program, *arguments]
        return subprocess.Popen(command, env=environment, text=True, **more)

    host = own_address()
    server = start(SERVER, host, stdout=subprocess.PIPE)
    client = None
    try:
        port = server.stdout.readline().strip()
        client = start(CLIENT, host, port)
        for name, program in (("client", client), ("server", server)):
            status = program.wait(timeout=40)
            if status != 0:
                print(f"the {name} ended with status {status}")
                return 1
    finally:
        for program in filter(None, (client, server)):
            program.kill()
            program.wait()
    return 0


sys.exit(main())
