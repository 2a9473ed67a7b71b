# SPDX-License-Identifier: BSD-2-Clause
"""The rows, by subject. Importing this package fills rows.table.GROUPS."""

from rows import (addresses, conformance, containers, faults, faults_cm, flows, hosts, ipv6, ledger, net, on_purpose,  # noqa: F401
                  perftest, pingpong, qperf, rdma_cm, refused, roce, roce_doctor, roce_trust, roce_tshark, strangers,
                  vanished)  # noqa: F401
