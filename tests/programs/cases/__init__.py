# SPDX-License-Identifier: BSD-2-Clause
"""All cases, by subject. Importing this package fills harness.registry.CASES."""

from cases import (aftermath, devices, iser, libfabric, log, mpi, nightly, node, pingpong, perftest, pyverbs, qemu,  # noqa: F401
                   rdma_cm, rdma_tool, refused, rsockets, srq, storage, surroundings, ucx, unreliable)
