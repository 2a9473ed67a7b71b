# SPDX-License-Identifier: BSD-2-Clause
"""The result as a table for people."""

_HEAD = ("work", "figure [min .. max]", "yardstick", "[min .. max]", "ratio [rounds]", "goal", "met")


def _number(value):
    if value >= 1000:
        return "%.0f" % value
    return "%.3f" % value if value < 10 else "%.1f" % value


def _range(side):
    return "%s [%s .. %s]" % (_number(side["median"]), _number(side["min"]), _number(side["max"]))


def _absent(side):
    """The reason in the row itself, in a few words; the whole line is below the table."""
    reason = side.get("reason", "no figure")
    return "not available: %s" % (reason if len(reason) <= 40 else reason[:37] + "...")


def _met(row):
    if row["goal"] is None:
        return "-"
    if row["met"] is None:
        return "unknown"
    answer = "yes" if row["met"] else "no"
    return answer if row["goal"]["stage"] == "first" else "(%s)" % answer


def _goal(row):
    if row["goal"] is None:
        return "-"
    text = "%s %g" % (row["goal"]["relation"], row["goal"]["limit"])
    return text if row["goal"]["stage"] == "first" else "then %s" % text


def _cells(row):
    figure, yardstick = row["figure"], row["yardstick"]
    note = " (%s)" % row["note"] if row["note"] else ""
    ratio = "-"
    if row["ratio"] is not None:
        ratio = "%.2f" % row["ratio"]
        if row["ratio_of_rounds"]:
            ratio += " [%.2f .. %.2f]" % (row["ratio_of_rounds"]["min"], row["ratio_of_rounds"]["max"])
    return (
        "%s, %s%s" % (row["work"], row["unit"], note),
        "%s %s" % (figure["statistic"], _range(figure)) if figure["available"] else _absent(figure),
        "-" if yardstick is None else "%s, %s" % (yardstick["what"], yardstick["statistic"]),
        "-" if yardstick is None else _range(yardstick) if yardstick["available"] else _absent(yardstick),
        ratio, _goal(row), _met(row))


def _gaps(rows):
    """Why figures are missing, or were missing in some rounds, each reason once."""
    reasons = {}
    for row in rows:
        for side in (row["figure"], row["yardstick"]):
            if side is not None and "reason" in side:
                how = "failed in %d round(s)" % side["failed_rounds"] if side["available"] else "not available"
                reasons[side["what"]] = "%s: %s" % (how, side["reason"])
    return ["%s: %s" % item for item in reasons.items()]


def table(rows):
    lines = [_HEAD] + [_cells(row) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
    text.insert(1, "-" * len(text[0]))
    gaps = _gaps(rows)
    if gaps:
        text += ["", "Missing:"] + ["  " + gap for gap in gaps]
    return "\n".join(text)


def verdict(rows):
    """One line: how many goals of the column "first" are met."""
    first = [row for row in rows if row["goal"] is not None and row["goal"]["stage"] == "first"]
    met = sum(row["met"] is True for row in first)
    missed = sum(row["met"] is False for row in first)
    return "goals \"first\": %d met, %d not met, %d unknown" % (met, missed, len(first) - met - missed)
