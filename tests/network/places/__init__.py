# SPDX-License-Identifier: BSD-2-Clause
"""Where the nodes of these tests live: network namespaces joined by a bridge, or addresses of one machine."""
