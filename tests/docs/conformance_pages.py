# SPDX-License-Identifier: BSD-2-Clause
"""Each manual page of verbs and rdma_cm, as the distribution installs them, has a clause, or a reason why it has none.

A page has a clause if the id of one begins with one of its names, or if the source of one cites it. The reasons are in
conformance/pages_without_clauses.txt. Exit status 77 where the pages are not installed.
"""

import gzip
import pathlib
import re
import subprocess
import sys

PACKAGES = ("libibverbs-dev", "librdmacm-dev")
SKIPPED = 77


def installed_pages():
    """Name -> file, for sections 3 and 7."""
    pages = {}
    for package in PACKAGES:
        try:
            listed = subprocess.run(["dpkg", "-L", package], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                    text=True)
        except FileNotFoundError:
            return {}
        for line in listed.stdout.splitlines():
            match = re.search(r"/man[37]/([A-Za-z0-9_]+)\.([37])(\.gz)?$", line)
            if match and pathlib.Path(line).exists():
                pages[f"{match[1]}({match[2]})"] = pathlib.Path(line)
    return pages


def target_of(path):
    """The file itself: a page may be a link to another, or one line that includes it."""
    path = path.resolve()
    text = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
    include = re.match(rb"\.so (?:man\d/)?(\S+)\s*$", text)
    if include is None:
        return path
    return next(found for end in ("", ".gz") if (found := path.parent / (include[1].decode() + end)).exists()).resolve()


def main():
    root = pathlib.Path(sys.argv[1]) / "conformance"
    pages = installed_pages()
    if not pages:
        print("the manual pages are not installed: " + " ".join(PACKAGES))
        return SKIPPED
    cited = set()
    for path in (root / "clauses").glob("*.toml"):
        text = path.read_text()
        cited.update(re.findall(r'^id = "([a-z0-9_]+)\.', text, re.M))
        for source in re.findall(r'^source = "(.*)"$', text, re.M):
            cited.update(re.findall(r"\b([a-z0-9_]+)\([37]\)", source))
    reasons = {}
    for line in (root / "pages_without_clauses.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, _, reason = line.partition(" ")
            reasons[pattern] = reason.strip()
    faults = [f"{pattern}: no reason" for pattern, reason in reasons.items() if len(reason) < 10]
    used = set()
    files = {}
    for name, path in pages.items():
        files.setdefault(target_of(path), set()).add(name)
    for names in files.values():
        plain = {name.split("(")[0] for name in names}
        excuses = {pattern for pattern in reasons if any(pathlib.PurePath(name).match(pattern) for name in names)}
        if plain & cited:
            faults += [f"{pattern} is excused, and has clauses" for pattern in excuses if "*" not in pattern]
        elif not excuses:
            faults.append(f"{', '.join(sorted(names))}: no clause, and no reason in pages_without_clauses.txt")
        used |= excuses
    faults += [f"{pattern}: no such page is installed" for pattern in reasons
               if pattern not in used and "*" not in pattern]
    print("\n".join(sorted(faults)) or f"{len(files)} pages of {len(pages)} names have clauses, or a reason why not")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
