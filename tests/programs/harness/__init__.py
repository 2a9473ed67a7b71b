# SPDX-License-Identifier: BSD-2-Clause
"""What the program tests share: nodes, processes, ports, and reading what stock programs print."""
