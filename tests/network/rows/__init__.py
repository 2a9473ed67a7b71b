# SPDX-License-Identifier: BSD-2-Clause
"""The rows, by what they look at. Importing this package fills rows.table.GROUPS."""

from rows import (addresses, conformance, containers, faults, hosts, ipv6, ledger, perftest, pingpong, rdma_cm,  # noqa: F401
                  refused, strangers)  # noqa: F401
