# SPDX-License-Identifier: BSD-2-Clause
"""All cases, by subject. Importing this package fills harness.registry.CASES."""

from cases import (aftermath, devices, libfabric, log, node, pingpong, perftest, pyverbs, rdma_cm,  # noqa: F401
                   rdma_tool, refused, rsockets, srq, surroundings, ucx, unreliable)
