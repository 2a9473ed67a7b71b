# SPDX-License-Identifier: BSD-2-Clause
"""All cases, by subject. Importing this package fills harness.registry.CASES."""

from cases import (aftermath, devices, libfabric, log, node, pingpong, perftest, pyverbs, rdma_cm, refused,  # noqa: F401
                   rsockets, srq, surroundings, ucx, unreliable)
