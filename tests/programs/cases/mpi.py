# SPDX-License-Identifier: BSD-2-Clause
"""MPI and OpenSHMEM over verbs: Open MPI by UCX, by libfabric and by its own openib, MPICH by UCX; on one node, and on two.

Shared memory and TCP are switched off in the libraries: they would take it for processes of one machine.
"""

import os
import re

from cases.rdma_cm import installed
from harness import ports
from harness.failure import expect
from harness.processes import Node
from harness.registry import add

SOURCES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")

OPEN_MPI = {  # how it reaches verbs
    "ucx_default": (("pml", "ucx"), ("osc", "ucx"), ("btl", "self")),
    "ucx_rc": (("pml", "ucx"), ("osc", "ucx"), ("btl", "self")),
    "ucx_ud": (("pml", "ucx"), ("osc", "ucx"), ("btl", "self")),
    "ofi_rxm": (("pml", "cm"), ("mtl", "ofi"), ("osc", "pt2pt"), ("mtl_ofi_provider_include", "verbs;ofi_rxm")),
    "openib": (("pml", "ob1"), ("btl", "openib,self"), ("btl_openib_allow_ib", "1"), ("osc", "pt2pt"),
               ("btl_openib_warn_no_device_params_found", "0")),
}
SHMEM = (("pml", "ucx"), ("spml", "ucx"), ("atomic", "ucx"), ("osc", "ucx"), ("btl", "self"))


def ucx_of(name):
    return {"rc": ("UCX_TLS=rc,self",), "ud": ("UCX_TLS=ud,self",)}.get(name.rsplit("_", 1)[-1], ())


def compiled(node, compiler, source):
    installed(compiler)
    program = os.path.join(node.folder, source)
    node.ended(node.start_beside(compiler, "-O1", "-w", f"{SOURCES}/{source}.c", "-o", program, name=compiler))
    return program


def open_mpi_options(parameters):
    return ("--oversubscribe", "--bind-to", "none", *(word for pair in parameters for word in ("--mca", *pair)))


def expect_right(program, ranks, unit="ranks"):
    expect(re.search(rf"^{ranks} {unit}: .*every \w+ right$", program.out, re.MULTILINE), f"{program.name} found no proof")


def open_mpi(settings, name, ranks):
    options = ("--link-layer", "infiniband") if name == "openib" else ()
    with Node(settings, options) as node:
        program = compiled(node, "mpicc.openmpi", "mpi_exchange")
        expect_right(node.run("env", *AS_ROOT, *ucx_of(name), "mpirun.openmpi", "-n", ranks,
                              *open_mpi_options(OPEN_MPI[name]), program, name=f"Open MPI, {name}"), ranks)


def mpich(settings, name, ranks):
    with Node(settings) as node:
        program = compiled(node, "mpicc.mpich", "mpi_exchange")
        expect_right(node.run("env", *ucx_of(name), "MPIR_CVAR_NOLOCAL=1", "mpiexec.mpich", "-n", ranks, program,
                              name=f"MPICH, {name}"), ranks)


def on_two_nodes(settings, launcher, options, compiler, variables):
    """Half of the ranks on each of two nodes, started by one launcher."""
    with Node(settings) as node:
        program = compiled(node, compiler, "mpi_exchange")
        key = os.path.join(node.folder, "key")
        node.ended(node.start_beside(settings.verbena, "key", key, name="verbena key"))
        port = ports.reserve()
        parts = [("-n", 2, settings.verbena, "run", "--node", f"mpi{i}", "--ip", f"127.0.9.{i}", "--port", port, "--key", key,
                  "--", "env", *variables, program) for i in (1, 2)]
        run = node.start_beside("env", *AS_ROOT, launcher, *options, *parts[0], ":", *parts[1], name=f"{launcher} on two nodes")
        expect_right(node.ended(run), 4)


def open_shmem(settings):
    with Node(settings) as node:
        program = compiled(node, "oshcc", "shmem_exchange")
        expect_right(node.run("env", *AS_ROOT, *ucx_of("rc"), "oshrun", "-n", 4, *open_mpi_options(SHMEM), program), 4, "PEs")


MPI4PY = """
from mpi4py import MPI
import sys
world = MPI.COMM_WORLD
for size in (1, 1000, 1000000):
    got = world.sendrecv(bytes([world.rank]) * size, (world.rank + 1) % world.size, 0, None, (world.rank - 1) % world.size)
    if got != bytes([(world.rank - 1) % world.size]) * size:
        sys.exit(f"rank {world.rank}: wrong bytes")
if world.allreduce(world.rank) != world.size * (world.size - 1) // 2:
    sys.exit("allreduce: wrong sum")
if world.rank == 0:
    print(f"{world.size} ranks: every byte right")
"""


def mpi4py(settings):
    installed("mpirun.openmpi")
    with Node(settings) as node:
        run = node.run("env", *AS_ROOT, *ucx_of("rc"), "mpirun.openmpi", "-n", 4, *open_mpi_options(OPEN_MPI["ucx_rc"]),
                       "/usr/bin/python3", "-c", MPI4PY, name="mpi4py")
        expect_right(run, 4)


for name in OPEN_MPI:
    add(f"openmpi.{name}", lambda settings, n=name: open_mpi(settings, n, 4))
add("openmpi.ucx_rc_8_ranks", lambda settings: open_mpi(settings, "ucx_rc", 8), long=True)
for name in ("ucx_default", "ucx_rc", "ucx_ud"):
    add(f"mpich.{name}", lambda settings, n=name: mpich(settings, n, 4))
add("mpich.ucx_rc_8_ranks", lambda settings: mpich(settings, "ucx_rc", 8), long=True)
add("openmpi.two_nodes", lambda settings: on_two_nodes(
    settings, "mpirun.openmpi", open_mpi_options(OPEN_MPI["ucx_rc"]), "mpicc.openmpi", ucx_of("rc")))
add("mpich.two_nodes", lambda settings: on_two_nodes(
    settings, "mpiexec.mpich", (), "mpicc.mpich", (*ucx_of("rc"), "MPIR_CVAR_NOLOCAL=1")))
add("oshrun.ucx_rc", open_shmem)
add("mpi4py.ucx_rc", mpi4py)
