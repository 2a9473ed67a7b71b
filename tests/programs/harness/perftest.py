# SPDX-License-Identifier: BSD-2-Clause
"""Reads the tables that perftest prints: one row per message size.

Latency: size, iterations, t_min, t_max, t_typical, t_avg, t_stdev, 99 %, 99.9 %.
Bandwidth: size, iterations, peak, average, message rate. (perftest 4.5, src/perftest_parameters.h, REPORT_FMT)
"""

from harness.failure import Failure, expect

# perftest asks for inline data on devices whose part number it knows, says so on others (also for reads and atomics,
# which never go inline), and goes on without.
HARMLESS = (r"^Device not recognized to implement inline feature\. Disabling it$",
            # It measures the clock's frequency, here on a machine that was busy at that moment (get_clock.c).
            r"^Correlation coefficient r\^2: [0-9.]+ < 0\.9$",
            # UD: it would try larger sizes, too.
            r"^ Max msg size in UD is MTU 4096$", r"^ Changing to this MTU$")

COLUMNS = {"lat": 9, "bw": 5}
ALL_SIZES = [2 ** power for power in range(1, 24)]


def rows(program, kind):
    """{size: numbers after the size} of the table with `kind`'s number of columns, duplicates refused."""
    table = {}
    for line in program.out.splitlines():
        fields = line.split()
        if len(fields) != COLUMNS[kind] or not fields[0].isdigit():
            continue
        try:
            numbers = [float(field) for field in fields[1:]]
        except ValueError:
            continue
        size = int(fields[0])
        expect(size not in table, f"{program.name} reports size {size} twice")
        table[size] = numbers
    if not table:
        raise Failure(f"{program.name} printed no table of results")
    return table


def check_table(program, kind, sizes, iterations):
    """Every size is there, with `iterations` or a multiple of it (several QPs), and all numbers are plausible."""
    table = rows(program, kind)
    expect(sorted(table) == sorted(sizes), f"{program.name} reports sizes {sorted(table)}, expected {sorted(sizes)}")
    for size, (count, *numbers) in table.items():
        expect(count > 0 and count % iterations == 0, f"{program.name}: {count:.0f} iterations for size {size}")
        # Bandwidth's peak is 0 where perftest does not measure it; a standard deviation may be 0. The average has two
        # decimals: that of the smallest messages rounds to 0 if the process was not scheduled for some milliseconds.
        essential = [numbers[2]] if kind == "bw" else [numbers[index] for index in (1, 2, 3, 5, 6)]
        if kind == "bw" and numbers[2] * size >= 0.02:
            essential.append(numbers[1])
        expect(all(0 < number < 1e9 for number in essential), f"{program.name}: size {size} gives {numbers}")
