# SPDX-License-Identifier: BSD-2-Clause
#
# Shows the adapter of a process or of its core dump in gdb:
#
#   gdb -x PREFIX/share/verbena/gdb/verbena.py PROGRAM CORE
#   (gdb) verbena          queue pairs, completion queues and memory regions
#   (gdb) verbena qps      also: cqs, mrs
#
# Needs no debugging information. The process's own segment is found by its mapping, and read as in
# emulator/adapter/layout.h. A unit test compares the numbers below with that header.
import re
import struct

import gdb

LAYOUT = {
    "version": 37, "magic": 0x47455356,
    "qp_table": 57344, "qp_size": 576, "cq_table": 37806080, "cq_size": 384, "mr_table": 100720640, "mr_size": 64,
    "header.size": 8, "header.slot": 24, "header.pid": 32, "header.qps": 68, "header.cqs": 72, "header.mrs": 76,
    "qp.state": 0, "qp.qpn": 8, "qp.dest_qpn": 12, "qp.incarnation": 32, "qp.type": 44, "qp.recv_cq": 100,
    "qp.send_cq": 104, "qp.in_use": 112, "qp.taken": 136, "qp.rq_posted": 272, "qp.sq_posted": 280,
    "qp.sq_completed": 288,
    "cq.alive": 0, "cq.channel": 4, "cq.generation": 20, "cq.rings": 64, "cq.ring_size": 128, "ring.tail": 0,
    "ring.head": 64, "ring.order": 88, "cq.armed": 320, "cq.overrun": 324,
    "mr.valid": 0, "mr.pd": 4, "mr.access": 8, "mr.iova": 16, "mr.length": 24, "mr.kind": 40,
}
STATES = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"]
TYPES = {2: "RC", 3: "UC", 4: "UD", 8: "RAW", 9: "XRC_SEND", 10: "XRC_RECV", 255: "DRIVER"}
ARMED = ["no", "solicited", "next", "raising"]
KINDS = ["region", "null region", "window 1", "window 2"]
KEY_VALID = 0x100


class Segment:
    def __init__(self, base):
        self.base = base

    def bytes(self, offset, size):
        return bytes(gdb.selected_inferior().read_memory(self.base + offset, size))

    def number(self, offset, form="<I"):
        return struct.unpack(form, self.bytes(offset, struct.calcsize(form)))[0]

    def is_own(self):
        """Only the process's own segment is in a core dump; in a live process its header names the process."""
        try:
            if self.number(0) != LAYOUT["magic"]:
                return False
            pid = gdb.selected_inferior().pid
            return pid in (0, self.number(LAYOUT["header.pid"]))
        except gdb.error:
            return False


def find_segment():
    try:
        mappings = gdb.execute("info proc mappings", to_string=True)
    except gdb.error as problem:
        raise gdb.GdbError("verbena: no mappings: %s" % problem)
    for line in mappings.splitlines():
        if "memfd:verbena-segment" not in line:
            continue
        segment = Segment(int(re.search(r"0x[0-9a-f]+", line).group(), 16))
        if not segment.is_own():
            continue
        version = segment.number(4)
        if version != LAYOUT["version"]:
            raise gdb.GdbError("verbena: the process has layout %d, this file knows %d: take the one that was installed "
                               "with the process's Verbena" % (version, LAYOUT["version"]))
        return segment
    raise gdb.GdbError("verbena: the process has no device open, or the dump has no anonymous shared memory "
                       "(core(5): coredump_filter, bit 1)")


def entries(segment, table, size, count):
    """(index, reader of a field of the entry) for each entry of a table that can be read."""
    for index in range(count):
        offset = LAYOUT[table] + index * LAYOUT[size]
        try:
            segment.bytes(offset, LAYOUT[size])
        except gdb.error:
            print("entry %d of %s is not in the dump" % (index, table))
            return
        yield index, lambda field, form="<I", offset=offset: segment.number(offset + field, form)


def show(title, rows):
    print("%s: %d" % (title, len(rows) - 1))
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    if len(rows) > 1:
        for row in rows:
            print("  " + "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip())


def show_qps(segment):
    rows = [("INDEX", "QPN", "TYPE", "STATE", "PEER QPN", "SEND CQ", "RECV CQ", "SQ", "RQ")]
    for index, get in entries(segment, "qp_table", "qp_size", segment.number(LAYOUT["header.qps"])):
        if get(LAYOUT["qp.in_use"]) == 0:
            continue
        state = get(LAYOUT["qp.state"], "<B")
        kind = get(LAYOUT["qp.type"], "<B")
        outstanding = get(LAYOUT["qp.sq_posted"], "<Q") - get(LAYOUT["qp.sq_completed"], "<Q")
        waiting = get(LAYOUT["qp.rq_posted"], "<Q") - get(LAYOUT["qp.taken"], "<Q")
        rows.append((index, "0x%06x" % get(LAYOUT["qp.qpn"]), TYPES.get(kind, kind),
                     STATES[state] if state < len(STATES) else state, "0x%06x" % get(LAYOUT["qp.dest_qpn"]),
                     get(LAYOUT["qp.send_cq"]), get(LAYOUT["qp.recv_cq"]), outstanding, waiting))
    show("queue pairs", rows)


def show_cqs(segment):
    rows = [("INDEX", "ENTRIES", "COMPLETIONS", "ARMED", "CHANNEL", "OVERRUN")]
    for index, get in entries(segment, "cq_table", "cq_size", segment.number(LAYOUT["header.cqs"])):
        if get(LAYOUT["cq.alive"]) == 0:
            continue
        ring = LAYOUT["cq.rings"] + (get(LAYOUT["cq.generation"]) & 1) * LAYOUT["cq.ring_size"]
        waiting = get(ring + LAYOUT["ring.tail"], "<Q") - get(ring + LAYOUT["ring.head"], "<Q")
        rows.append((index, 1 << get(ring + LAYOUT["ring.order"]), waiting, ARMED[get(LAYOUT["cq.armed"]) & 3],
                     get(LAYOUT["cq.channel"]) or "-", "yes" if get(LAYOUT["cq.overrun"]) else "no"))
    show("completion queues", rows)


def show_mrs(segment):
    rows = [("LKEY", "RKEY", "KIND", "PD", "ACCESS", "ADDRESS", "LENGTH")]
    for index, get in entries(segment, "mr_table", "mr_size", segment.number(LAYOUT["header.mrs"])):
        valid = get(LAYOUT["mr.valid"])
        if valid & KEY_VALID == 0:
            continue
        lkey = index << 9 | (valid & 0xff)
        kind = get(LAYOUT["mr.kind"])
        rows.append(("0x%x" % lkey, "0x%x" % (lkey | 0x100), KINDS[kind] if kind < len(KINDS) else kind,
                     get(LAYOUT["mr.pd"]), "0x%x" % get(LAYOUT["mr.access"]), "0x%x" % get(LAYOUT["mr.iova"], "<Q"),
                     get(LAYOUT["mr.length"], "<Q")))
    show("memory regions", rows)


class Verbena(gdb.Command):
    """Show the Verbena adapter of the process: verbena [qps|cqs|mrs]"""

    PARTS = {"qps": show_qps, "cqs": show_cqs, "mrs": show_mrs}

    def __init__(self):
        super().__init__("verbena", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        wanted = gdb.string_to_argv(argument) or list(self.PARTS)
        for word in wanted:
            if word not in self.PARTS:
                raise gdb.GdbError("verbena: %s? (qps, cqs, mrs)" % word)
        segment = find_segment()
        print("adapter of process %d, slot %d" % (segment.number(LAYOUT["header.pid"], "<i"),
                                                  segment.number(LAYOUT["header.slot"])))
        for word in wanted:
            self.PARTS[word](segment)


Verbena()
