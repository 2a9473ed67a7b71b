# SPDX-License-Identifier: BSD-2-Clause
"""The conformance suite names no device, driver or vendor: not in its sources, and in a clause as its source, or where its
promise was seen in a driver, only."""

import pathlib
import re
import sys

# Drivers of the kernel and providers of rdma-core; makers of adapters; this one.
WORDS = r"""
bnxt\w* broadcom chelsio connectx cxgb\d efa efadv erdma hfi1\w* hns hns_roce\w* huawei ibmvnic infinipath intel ionic
ipathverbs irdma i40iw iwpmd mana manadv marvell mellanox microsoft mlx4\w* mlx5\w* mthca nes nvidia ocrdma
pensando qedr qib qlogic rdmavt rxe rxe_\w+ rdma_rxe siw siw_\w+ softroce soft-roce usnic verbena\w* vmw_pvrdma vmware
"""
NAME = re.compile(r"(?<![A-Za-z0-9])(" + "|".join(WORDS.split()) + r")(?![A-Za-z0-9])", re.IGNORECASE)

root = pathlib.Path(sys.argv[1]) / "conformance"
sources = [path for folder in ("chapters", "peer", "program", "suite", "support") for path in sorted((root / folder).iterdir())]
clauses = sorted((root / "clauses").glob("*.toml"))
found = []
for path in sources + clauses:
    for number, line in enumerate([path.name, *path.read_text().splitlines()]):
        if path in clauses and line.startswith(("source = ", "seen_in = ", '  "')):
            continue
        found += [f"{path.relative_to(root)}:{number}: {name[0]}" for name in NAME.finditer(line)]
if len(sources) < 80 or len(clauses) < 29:
    found.append(f"{len(sources)} sources and {len(clauses)} clauses files: too few to be all")
print("\n".join(found) or "no device, driver or vendor is named")
sys.exit(bool(found))
