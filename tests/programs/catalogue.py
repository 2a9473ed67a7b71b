# SPDX-License-Identifier: BSD-2-Clause
"""What the cases of tests/programs and the rows of tests/network do not say by themselves, for
docs/PROGRAMS.md (tests/docs/programs.py)."""

# Debian package: its programs.
PACKAGES = {
    "ibverbs-utils": ("ibv_devices", "ibv_devinfo", "ibv_asyncwatch", "ibv_rc_pingpong", "ibv_uc_pingpong",
                      "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong"),
    "perftest": ("ib_send_lat", "ib_send_bw", "ib_write_lat", "ib_write_bw", "ib_read_lat", "ib_read_bw",
                 "ib_atomic_lat", "ib_atomic_bw"),
    "rdmacm-utils": ("rping", "ucmatose", "udaddy", "mckey", "rdma_client", "rdma_xclient", "cmtime", "rstream",
                     "riostream", "rcopy", "udpong"),
    "librdmacm1": ("librspreload.so",),
    "qperf": ("qperf",),
    "ucx-utils": ("ucx_perftest",),
    "libfabric-bin": ("fi_pingpong",),
    "openmpi-bin": ("openmpi", "oshrun"),
    "mpich": ("mpich",),
    "python3-mpi4py": ("mpi4py",),
    "fio": ("fio",),
    "qemu-system-x86": ("qemu",),
    "iproute2": ("rdma",),
    "libibumad3": ("umad",),
    "ceph-osd": ("ceph",),
    "tgt": ("tgtd",),
    "redis-server": ("redis",),
    "eRPC, from its source": ("eRPC",),
    "librpma, from its source": ("rpma",),
    "SPDK 26.05, from its source": ("spdk",),
    "Valkey, from its source": ("valkey",),
    "dapl2-utils": ("dtest",),
    "iperf3": ("iperf3",),
    "python3-pyverbs": ("pyverbs",),
    "gdb": ("gdb",),
    "valgrind": ("valgrind",),
}

# What a user has to set, by program, or by program and way (tests/docs/programs.py, WAYS).
_GID_OR_LID = "`-g 1`, or `verbena run --link-layer infiniband`"
SET = {
    "ibv_rc_pingpong": _GID_OR_LID,
    "ibv_uc_pingpong": _GID_OR_LID,
    "ibv_ud_pingpong": _GID_OR_LID,
    "ibv_srq_pingpong": _GID_OR_LID,
    "ibv_xsrq_pingpong": "`-g 1`",
    "udpong": "`verbena run --link-layer infiniband`: it addresses without a GRH",
    "qperf rdma_cm": "`-cm 1`",
    "qperf InfiniBand": "`verbena run --link-layer infiniband`: it addresses without a GRH",
    "iperf3": "`LD_PRELOAD=librspreload.so RDMAV_FORK_SAFE=1`",
    "librspreload.so": "`LD_PRELOAD`",
    "ucx_perftest rc": "`UCX_TLS=rc`",
    "ucx_perftest ud": "`UCX_TLS=ud`",
    "ucx_perftest all": "`UCX_TLS=all`",
    "fi_pingpong msg": "`-p verbs -e msg`",
    "fi_pingpong dgram": "`-p verbs -e dgram`",
    "fi_pingpong rxd": "`-p 'verbs;ofi_rxd' -e rdm`",
    "openmpi": "`--mca pml ucx --mca osc ucx --mca btl self`, `UCX_TLS=rc,self`; by libfabric `--mca pml cm --mca mtl ofi "
               "--mca mtl_ofi_provider_include 'verbs;ofi_rxm'`; openib: `verbena run --link-layer infiniband`",
    "oshrun": "`--mca spml ucx --mca atomic ucx`, `UCX_TLS=rc,self`",
    "mpich": "`MPIR_CVAR_NOLOCAL=1`, so that ranks of one machine do not use shared memory",
    "mpi4py": "as `openmpi`",
    "ceph": "`ms type = async+rdma`, `ms async rdma device name = verbena0`",
    "tgtd": "the initiator's address and name in the target's ACLs (`-I ALL`, `-Q NAME`); libiscsi 1.19: requests up to 256 KiB",
    "redis": "`LD_PRELOAD=librspreload.so` of rdma-core after 64",
    "eRPC": "huge pages: 600 of 2 MB are enough for its tests (as root: `sysctl vm.nr_hugepages=600`); without them it ends: "
            "`Insufficient hugepages`",
    "spdk": "`--no-huge -s 512 -u`, or huge pages; two programs on one machine: `--disable-cpumask-locks`, and each "
            "its own `-r SOCKET`",
    "valkey": "`--loadmodule valkey-rdma.so port=PORT bind=ADDRESS`",
    "dtest": "an interface of `libdaplofa.so.2` with the address in `dat.conf`",
    "gdb": "`-x PREFIX/share/verbena/gdb/verbena.py`",
}

# In names a "*" stands for anything, and a "." at the end for all names that begin so.

# Cases whose names do not begin with a program: the program, and what the case does with it.
ABOUT = {
    "core.small_and_readable": ("gdb", "a core dump"),
    "valgrind.leaked_device": ("valgrind", "a program that leaks its device"),
    "four_processes": ("ibv_rc_pingpong", "two pairs at once"),
    "idle.pingpong_server": ("ibv_rc_pingpong", "a server that waits"),
    "idle.asyncwatch": ("ibv_asyncwatch", "waiting"),
    "umad.absent": ("umad", "says that there is no umad device"),
    "rsockets.preloaded": ("librspreload.so", "rstream -T s"),
}

# Cases, groups and rows that are about the adapter or the command, not about a stock program.
OTHER_CASES = ("capture.", "trace.", "nothing_is_left", "env.", "cleaner.", "sanitized.", "limits.", "log.", "status.",
               "nothing_left_behind", "exit_status", "without_root", "demo", "hides_real_devices", "loopback_alone", "doctor.",
               "loaded_when_needed", "preloaded_epoll.", "sanitized_sender", "refused.doctor", "refused.*.status",
               "refused.*.conformance")
OTHER_GROUPS = ("addresses", "conformance", "container", "containers", "containers_roce", "images", "images_apart", "ledger", "faults",
                "faults_of_three", "flows", "vanished", "faults_of_rdma_cm", "hosts", "cables", "net", "refused_within",
                "on_purpose", "packets_on_purpose", "roce", "roce6", "roce6_doctor", "roce6_tshark", "roce_doctor", "roce_shared", "roce_trust", "roce_tshark",
                "strangers")
OTHER_ROWS = ("ledger", "*.ledger", "conformance.", "doctor_and_status")

# What ends for a reason that adapters share: program, package, what happens and why.
ON_ADAPTERS_TOO = (
    ("nfs-ganesha over RDMA", "nfs-ganesha 4.3-2",
     "Debian builds libntirpc without USE_RPC_RDMA: libntirpc.so.4.3 needs neither libibverbs nor librdmacm and exports no "
     "`rpc_rdma_*`. There is no client outside a kernel, either: libnfs 4.0 speaks TCP, the client is net/sunrpc/xprtrdma "
     "of Linux"),
    ("redis-server over librspreload", "redis-server 5:7.0.15, librdmacm1 44.0",
     "It ends: `Unrecoverable error creating TCP socket accept handler`. Redis waits by epoll (ae.c), which librspreload does "
     "not intercept up to rdma-core 64 (preload.c has no `epoll_ctl`); the number that `socket` returned is that of /dev/null "
     "(preload.c, fd_open), which epoll_ctl(2) refuses with EPERM. With librspreload and librdmacm of rdma-core after 64 "
     "(96b5621ee) it runs (`redis` above), without RDMAV_FORK_SAFE"),
    ("pvrdma in a guest", "qemu-system-x86 1:7.2",
     "QEMU's device starts with verbena0 (`qemu` above). Debian's kernels have no driver for it: "
     "`# CONFIG_INFINIBAND_VMWARE_PVRDMA is not set` in config-6.1.0-*-amd64. In front of an adapter it needs rdmacm-mux as well "
     "(QEMU's contrib/rdmacm-mux), which is not packaged. With the driver built, a guest finds the device, but programs crash: "
     "libvmw_pvrdma of rdma-core 44 writes to `qp_tbl[qp_handle & 0xFFFF]` (qp.c, pvrdma_create_qp), a table of as many entries "
     "as QEMU offers queue pairs, 1024 (pvrdma_main.c, pvrdma_init_context_shared), and QEMU's handle is the adapter's QP number"),
)
