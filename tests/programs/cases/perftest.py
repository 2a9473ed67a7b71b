# SPDX-License-Identifier: BSD-2-Clause
"""perftest: ib_{send,write,read,atomic}_{lat,bw}. One row per case; the rows are what the programs offer for RC.

What perftest itself refuses is not here: -a for atomics, -e for writes, -I for reads and atomics, -q for latency
(perftest 4.5, src/perftest_parameters.c).
"""

import dataclasses
import os

from harness.pair import run_pair
from harness.perftest import ALL_SIZES, HARMLESS, check_table
from harness.processes import Node
from harness.registry import add


@dataclasses.dataclass(frozen=True)
class Row:
    program: str
    variant: str
    options: tuple = ()
    iterations: int = 1000
    sizes: tuple = ()  # what the table must show; (): the program's own size
    run_options: tuple = ()
    quick: bool = False
    long: bool = False
    shared: bool = False  # the buffers are files that both ends map MAP_SHARED, and that peers can map


DEFAULT_SIZE = {"lat": 2, "bw": 65536}
ATOMIC_SIZE = 8
INFINIBAND = ("--link-layer", "infiniband")
MEBIBYTE = 1 << 20
SWEEP = 25  # messages of each of 24 sizes, the largest 8 MiB
UD_SIZES = [size for size in ALL_SIZES if size <= 4096]


def kind(program):
    return program.rsplit("_", 1)[1]


def default_sizes(program, options):
    if "UD" in options and kind(program) == "bw":
        return (UD_SIZES[-1],)  # the program's own size is larger, and cut to the MTU
    return (ATOMIC_SIZE,) if "atomic" in program else (DEFAULT_SIZE[kind(program)],)


def sized(size, **more):
    return {"options": ("-s", size), "sizes": (size,), **more}


def sweep(*options, sizes=ALL_SIZES, **more):
    """perftest calibrates a clock for each size: ten seconds for all of them."""
    return {"options": (*options, "-a"), "iterations": SWEEP, "sizes": tuple(sizes), **more}


# name of the variant: how it differs from the plain run
PLAIN = {"plain": {"quick": True}}
ALL = {"all_sizes": sweep()}
ALL_LONG = {"all_sizes": sweep(long=True)}
ONE_SIZE = {"size_1": sized(1), "size_64": sized(64), "size_4096": sized(4096),
            "size_1M": sized(MEBIBYTE, iterations=100)}
EVENTS = {"events": {"options": ("-e",), "iterations": 500, "quick": True}}
EVENTS_ALL = {"events_all_sizes": sweep("-e", long=True)}
BOTH_WAYS = {"bidirectional": {"options": ("-b",), "quick": True}}
BOTH_WAYS_ALL = {"bidirectional_all_sizes": sweep("-b", long=True)}
BOTH_WAYS_EVENTS = {"bidirectional_events": {"options": ("-b", "-e"), "iterations": 500}}
QPS = {"qps_2": {"options": ("-q", 2)},
       "qps_8": {"options": ("-q", 8), "quick": True},
       "qps_8_bidirectional": {"options": ("-q", 8, "-b")}}
QPS_SMALL = {"qps_8_size_64": {"options": ("-q", 8, "-s", 64), "sizes": (64,)}}
INLINE = {"inline": {"options": ("-I", 64, "-s", 32), "sizes": (32,)}}
# perftest takes ibv_wr_* only on adapters whose part number it knows; elsewhere the option changes nothing.
OLD_POST_SEND = {"old_post_send": {"options": ("--use_old_post_send",), "quick": True}}
POST_LIST = {"post_list": {"options": ("-l", 8), "iterations": 800}}
DEPTHS = {"deep_queue": {"options": ("-t", 2048, "-s", 64), "iterations": 4096, "sizes": (64,)},
          "one_in_flight": {"options": ("-t", 1)}}
SHARED = {"srq": {"options": ("--use-srq",), "quick": True},
          "srq_size_64": {"options": ("--use-srq", "-s", 64), "sizes": (64,)}}
SHARED_QPS = {"srq_qps_8": {"options": ("--use-srq", "-q", 8), "quick": True},
              "srq_qps_8_bidirectional": {"options": ("--use-srq", "-q", 8, "-b")}}
XRC = {"xrc": {"options": ("-c", "XRC"), "quick": True}}
XRC_ALL = {"xrc_all_sizes": sweep("-c", "XRC", long=True)}
XRC_QPS = {"xrc_qps_8": {"options": ("-c", "XRC", "-q", 8)}}
LINK_LOCAL = {"gid0": {"options": ("-x", 0)}}
LIDS = {"infiniband": {"run_options": INFINIBAND}}
SMALL_MTU = {"mtu_256": {"options": ("-m", 256)}}
SHARED_MEMORY = {"shared_memory": {"options": ("-s", 4096), "sizes": (4096,), "shared": True, "iterations": 5000,
                                   "quick": True}}
SHARED_WORDS = {"shared_memory": {"shared": True, "iterations": 5000, "quick": True}}
COMPARE = {"compare_and_swap": {"options": ("-A", "CMP_AND_SWAP"), "quick": True}}
ONE_READ = {"one_outstanding": {"options": ("-o", 1)}}

# Over UD, whose messages end at the MTU. perftest compares the kind of its own GID with that of the group's: the
# link-local one is IPv6, as the group's is.
UD = {"ud": {"options": ("-c", "UD"), "quick": True}}
UD_MORE = {"ud_all_sizes": sweep("-c", "UD", sizes=UD_SIZES, long=True),
           "ud_events": {"options": ("-c", "UD", "-e"), "iterations": 500},
           "ud_infiniband": {"options": ("-c", "UD"), "run_options": INFINIBAND},
           "ud_gid0": {"options": ("-c", "UD", "-x", 0)},
           "ud_multicast": {"options": ("-c", "UD", "-g", "-x", 0), "quick": True}}
UD_BOTH_WAYS = {"ud_bidirectional": {"options": ("-c", "UD", "-b")}, "ud_qps_4": {"options": ("-c", "UD", "-q", 4)}}

UC = {"uc": {"options": ("-c", "UC"), "quick": True},
      "uc_all_sizes": sweep("-c", "UC", long=True)}
UC_EVENTS = {"uc_events": {"options": ("-c", "UC", "-e"), "iterations": 500}}
UC_BOTH_WAYS = {"uc_bidirectional": {"options": ("-c", "UC", "-b")}}

OFFERED = {
    "ib_send_lat": (PLAIN, ALL_LONG, ONE_SIZE, EVENTS, EVENTS_ALL, INLINE, OLD_POST_SEND, LINK_LOCAL, LIDS,
                    SMALL_MTU, SHARED, XRC, UD, UD_MORE, UC, UC_EVENTS),
    "ib_send_bw": (SHARED, SHARED_QPS, XRC, XRC_ALL, XRC_QPS, PLAIN, ALL, ONE_SIZE, EVENTS, BOTH_WAYS,
                   BOTH_WAYS_ALL, BOTH_WAYS_EVENTS, QPS, QPS_SMALL, INLINE,
                   POST_LIST, DEPTHS, LIDS,
                   UD, UD_MORE, UD_BOTH_WAYS, UC, UC_EVENTS, UC_BOTH_WAYS,
                   SHARED_MEMORY, {"few_receives": {"options": ("-r", 2, "-s", 64), "sizes": (64,), "iterations": 500}}),
    "ib_write_lat": (XRC, PLAIN, ALL_LONG, ONE_SIZE, INLINE, LINK_LOCAL, LIDS, UC, SHARED_MEMORY),
    "ib_write_bw": (XRC, PLAIN, ALL_LONG, ONE_SIZE, BOTH_WAYS, BOTH_WAYS_ALL, QPS, QPS_SMALL, INLINE, POST_LIST, DEPTHS, LIDS,
                    UC, UC_BOTH_WAYS),
    "ib_read_lat": (XRC, PLAIN, ALL, ONE_SIZE, EVENTS, LIDS, SHARED_MEMORY),
    "ib_read_bw": (XRC, PLAIN, ALL_LONG, ONE_SIZE, EVENTS, BOTH_WAYS, QPS, ONE_READ, POST_LIST, DEPTHS, LIDS),
    "ib_atomic_lat": (XRC, PLAIN, EVENTS, COMPARE, LIDS, SHARED_WORDS),
    "ib_atomic_bw": (XRC, PLAIN, EVENTS, COMPARE, BOTH_WAYS, QPS, ONE_READ, LIDS),
}


# perftest measures the processor's clock at its start. When other programs disturb it, it reports that, and all its
# figures are 0 (perftest 4.5, src/get_clock.c, sample_get_cpu_mhz): then it is started again.
UNCALIBRATED = "Correlation coefficient r^2"


def shared_file(node, name):
    path = os.path.join(node.folder, name)
    with open(path, "wb") as file:
        file.truncate(16 * MEBIBYTE)
    return "--mmap", path


def measure(settings, row, as_user=None):
    with Node(settings, row.run_options, as_user) as node:
        both = ("-F", "-n", row.iterations, *row.options)
        ends = [shared_file(node, name) if row.shared else () for name in ("server", "client")]
        for _ in range(5):
            server, client = run_pair(node, row.program, *ends, both=both, harmless=HARMLESS)
            if UNCALIBRATED not in client.err + server.err:
                break
        check_table(client, kind(row.program), row.sizes or default_sizes(row.program, row.options), row.iterations)


for program, groups in OFFERED.items():
    for group in groups:
        for variant, difference in group.items():
            row = Row(program, variant, **difference)
            # Programs that measure latency calibrate a clock, busily, on both sides.
            add(f"{program}.{variant}", lambda settings, r=row: measure(settings, r), row.quick,
                processors=2 if kind(program) == "lat" else 1, long=row.long)
