# SPDX-License-Identifier: BSD-2-Clause
"""All cases, by subject. Importing this package fills harness.registry.CASES."""

from cases import devices, log, node, pingpong, perftest, pyverbs, rdma_cm, refused, srq, surroundings, ucx, unreliable  # noqa: F401
