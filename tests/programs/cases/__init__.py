# SPDX-License-Identifier: BSD-2-Clause
"""All cases, by subject. Importing this package fills harness.registry.CASES."""

from cases import (aftermath, devices, libfabric, log, mpi, node, pingpong, perftest, pyverbs, rdma_cm,  # noqa: F401
                   refused, rsockets, srq, storage, surroundings, ucx, unreliable)
