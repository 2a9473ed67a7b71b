# SPDX-License-Identifier: BSD-2-Clause
"""The rows, by what they look at. Importing this package fills rows.table.GROUPS."""

from rows import addresses, conformance, containers, faults, hosts, ledger, perftest, pingpong, rdma_cm, refused  # noqa: F401
