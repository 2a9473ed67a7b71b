# SPDX-License-Identifier: BSD-2-Clause
"""All cases, by subject. Importing this package fills harness.registry.CASES."""

from cases import (aftermath, devices, log, node, pingpong, perftest, pyverbs, rdma_cm, refused, srq, surroundings,  # noqa: F401
                   ucx, unreliable)
