# SPDX-License-Identifier: BSD-2-Clause
"""ibv_ud_pingpong and ibv_uc_pingpong of ibverbs-utils: the same over transports without acknowledgements."""

from cases import pingpong
from harness.registry import add

# name: options of the program, options of `verbena run`, quick
COMMON = {
    "gid1": (("-g", 1), (), True),
    "gid0": (("-g", 0), (), False),
    "events": (("-g", 1, "-e"), (), True),
    "infiniband": ((), pingpong.INFINIBAND, True),
    "infiniband_gid0": (("-g", 0), pingpong.INFINIBAND, False),
    "two_receives": (("-g", 1, "-r", 2), (), False),
    "second_device": (("-g", 1, "-d", "verbena1"), ("--devices", 2), False),
}
PROGRAMS = {
    "ibv_ud_pingpong": {"sizes": (1, 48, 216, 1024, 4096)},
    "ibv_uc_pingpong": {"sizes": (1, 96, 4096, 65536)},
}

for program, limits in PROGRAMS.items():
    for variant, (program_options, run_options, is_quick) in COMMON.items():
        add(f"{program}.{variant}",
            lambda settings, p=program, o=program_options, r=run_options: pingpong.exchange(settings, o, r, program=p),
            is_quick)
    for message_size in limits["sizes"]:
        add(f"{program}.size_{message_size}",
            lambda settings, p=program, s=message_size: pingpong.exchange(settings, ("-g", 1), size=s, program=p))
