# SPDX-License-Identifier: BSD-2-Clause
"""The rows, by what they look at. Importing this package fills rows.table.GROUPS."""

from rows import hosts  # noqa: F401
