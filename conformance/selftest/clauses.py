#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""The clause compiler takes what `seen_in` may say, carries it, and refuses everything else.

    conformance/selftest/clauses.py CLAUSE_COMPILER
"""
import pathlib
import subprocess
import sys
import tempfile

CLAUSE = """chapter = "pd"
title = "Protection domains"
order = 1
[[clause]]
id = "ibv_alloc_pd.pointer"
promise = "Allocating a PD gives a pointer."
source = "ibv_alloc_pd(3), RETURN VALUE"
applies = ["any"]
level = "must"
"""
TAKEN = ('["driver 6.1: create_qp() rounds up", "other_driver 6.1: chk_cap()"]',
         '["driver 6.1: firmware decides; modify_qp() hands it on"]',
         '["library v44: f()"]',
         '["library v44.1: f()"]')
REFUSED = ('["driver: f()"]', '["driver 44: f()"]', '["driver 6.1 f()"]', '["driver 6.1: f"]', '["driver 6.1: ()"]',
           '["driver 6.: f()"]', '["driver v: f()"]', '[": f()"]', '["two words 6.1: f()"]', '[3]', "[]",
           '"driver 6.1: f()"', "")


def compiled(compiler, folder, seen_in):
    """Whether such a clause is taken; what is carried, or said."""
    clauses = folder / "pd.toml"
    clauses.write_text(CLAUSE + (f"seen_in = {seen_in}\n" if seen_in else ""))
    run = subprocess.run([compiler, folder, clauses], stderr=subprocess.PIPE, text=True, timeout=10)
    return run.returncode == 0, (folder / "seen_table.inc").read_text() if run.returncode == 0 else run.stderr


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for seen_in in TAKEN:
            is_taken, table = compiled(sys.argv[1], folder, seen_in)
            if not is_taken or not table.startswith(seen_in.strip("[]").replace(", ", ",\n")):
                wrong.append(f"{seen_in} should be carried; seen: {table}")
        for seen_in in REFUSED:
            is_taken, said = compiled(sys.argv[1], folder, seen_in)
            if is_taken or "'seen_in'" not in said or "ibv_alloc_pd.pointer" not in said:
                wrong.append(f"{seen_in or 'a clause without it'} should be refused; seen: {said}")
    print("\n".join(wrong) or f"{len(TAKEN)} lists taken, {len(REFUSED)} refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
