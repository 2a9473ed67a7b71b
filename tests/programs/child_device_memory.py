# SPDX-License-Identifier: BSD-2-Clause
"""Device memory in forked children, through the context of their parent. Prints "done"."""

import errno
import os
import sys

from pyverbs import enums
from pyverbs.device import DM, AllocDmAttr, Context
from pyverbs.mr import DMMR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError

ACCESS = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_ZERO_BASED
context = Context(name="verbena0")
pd = PD(context)
ALL = context.query_device_ex().max_dm_size


def check(what, seen, wanted):
    if seen != wanted:
        sys.stderr.write(f"{what}: {seen!r} instead of {wanted!r}\n")
        os._exit(1)


def refusal(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except PyverbsRDMAError as error:
        return error.error_code
    return 0


def allocate(size):
    return DM(context, AllocDmAttr(length=size))


def in_child(function):
    """Runs it in a forked child, which ends without cleaning up what `function` leaves."""
    child = os.fork()
    if child == 0:
        function()
        os._exit(0)
    return child


def end_of(child):
    check("the status of a child", os.waitpid(child, 0)[1], 0)


def use_some():
    dm = allocate(4096)
    dm.copy_to_dm(0, b"device memory ok", 16)
    check("what is in it", dm.copy_from_dm(0, 16), b"device memory ok")
    check("more than there is", refusal(allocate, ALL), errno.ENOMEM)
    # The adapter is the parent: no request could reach the child's memory.
    check("a region of it", refusal(DMMR, pd, 4096, ACCESS, dm=dm, offset=0), errno.EIO)
    dm.close()
    check("all of it, after the rest is freed", refusal(lambda: allocate(ALL).close()), 0)


children = [in_child(lambda: allocate(ALL // 16 * 4).close()) for _ in range(4)]
for one in children:
    end_of(one)
end_of(in_child(use_some))

# What the parent has counts for its children, and the other way round.
mine = allocate(ALL // 4 * 3)
end_of(in_child(lambda: check("beside the parent's", refusal(allocate, ALL // 2), errno.ENOMEM)))


def inherited():
    check("the parent's, in the child", refusal(mine.copy_to_dm, 0, b"1234", 4), errno.EIO)
    mine.close()  # the child's copy only


end_of(in_child(inherited))
mine.copy_to_dm(0, b"1234", 4)
check("the parent's, after the child has closed its copy", mine.copy_from_dm(0, 4), b"1234")
check("the rest", refusal(allocate, ALL // 2), errno.ENOMEM)
mine.close()

# Not freed by the child: it belongs to the command descriptor, which the parent has open (as in the kernel).
end_of(in_child(lambda: globals().update(kept=allocate(ALL // 4 * 3))))
check("what a child has not freed", refusal(allocate, ALL // 2), errno.ENOMEM)
pd.close()
context.close()
context = Context(name="verbena0")
check("all of it, after the device is closed", refusal(lambda: allocate(ALL).close()), 0)
context.close()
print("done")
