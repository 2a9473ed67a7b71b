# SPDX-License-Identifier: BSD-2-Clause
"""A peer of another version."""
import socket
import struct
import threading
import unittest

import scripted


class Peer(unittest.TestCase):
    def test_of_another_version_is_refused_in_one_line(self):
        for answer, why in ((struct.pack("<I", 99) + b"what a version 99 says", "version 99"), (b"", "malformed"),
                            (struct.pack("<I", 6), "malformed")):
            with self.subTest(answer=answer), socket.create_server(("127.0.0.1", 0)) as server:
                server.settimeout(scripted.TIME)

                def serve():
                    try:
                        connection, _ = server.accept()
                    except OSError:  # nobody came
                        return
                    with connection:
                        connection.recv(4096)
                        connection.sendall(struct.pack("<IB", 1 + len(answer), 0) + answer)
                        connection.recv(4096)  # until it closes

                thread = threading.Thread(target=serve, daemon=True)
                thread.start()
                seen = scripted.run("--filter", "pd.Conforms", "--peer", f"127.0.0.1:{server.getsockname()[1]}")
                server.shutdown(socket.SHUT_RDWR)  # the listener, should nobody have come
                thread.join(scripted.TIME)
                self.assertEqual((seen.returncode, seen.stdout, seen.stderr.count("\n")), (2, "", 1), seen)
                self.assertIn(why, seen.stderr)
