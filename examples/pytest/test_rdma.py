# SPDX-License-Identifier: BSD-2-Clause
"""Tests of programs that use RDMA, on a machine without RDMA:

  apt install ./verbena_*.deb ./verbena-dev_*.deb python3-pytest
  pytest-3 examples/pytest
"""

import pytest


def test_a_program_sees_a_device(rdma_node):
    assert "verbena0" in rdma_node.run("ibv_devices").out


@pytest.mark.rdma_node(devices=2, link_layer="infiniband")
def test_two_devices(rdma_node):
    seen = rdma_node.run("ibv_devinfo").out
    assert "verbena1" in seen and "link_layer:\t\tInfiniBand" in seen


def test_a_server_and_its_client(rdma_node):
    port = rdma_node.port()
    server = rdma_node.start("ibv_rc_pingpong", "-g", 1, "-p", port)
    rdma_node.wait_listening(port, server)
    client = rdma_node.run("ibv_rc_pingpong", "-g", 1, "-p", port, "localhost")
    assert "1000 iters" in client.out
    server.finish()


def test_a_program_without_a_device_says_so(rdma_node):
    seen = rdma_node.run("ibv_rc_pingpong", "-d", "verbena9", status=1)
    assert "IB device verbena9 not found" in seen.err
