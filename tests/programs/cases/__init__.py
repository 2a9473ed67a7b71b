# SPDX-License-Identifier: BSD-2-Clause
"""All cases, by subject. Importing this package fills harness.registry.CASES."""

from cases import (aftermath, capture, ceph, devices, erpc, iser, libfabric, log, mpi, nightly, node, pingpong, perftest,  # noqa: F401
                   pyverbs, qemu, rdma_cm, rdma_tool, redis, refused, rpma, rsockets, spdk, srq, storage, surroundings,
                   trace, ucx, unreliable, valkey)
