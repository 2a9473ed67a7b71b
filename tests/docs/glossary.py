# SPDX-License-Identifier: BSD-2-Clause
"""No private words: identifiers, comments and documents use the terms of the field.

usage: glossary.py SOURCE_ROOT | --self-test

RULES lists the private words and what to write instead. Most of them are ordinary English or standard terms elsewhere
("in turn", "third party", $HOME), so a rule matches the private sense only. Each hit is printed as file:line; the exit
status is 1 if there is any.

camelCase and snake_case are split into words, and the lines of a comment are joined, before a rule is tried. A space in
a pattern matches any white space. Patterns ignore case, except within (?-i:...).

Not checked: names of tests and clause ids, since reports and expectations refer to them; quoted manual pages.
"""

import pathlib
import re
import sys

ROOTS = ("emulator", "provider", "tests", "conformance", "docs", "docker", "scripts", "cmake", "packaging", "examples")
SUFFIXES = {"", ".c", ".cc", ".h", ".py", ".sh", ".md", ".cmake", ".txt", ".toml", ".edits", ".yaml", ".map", ".supp"}
OWN = "tests/docs/glossary.py"
FEWEST_FILES = 900  # fewer are not the whole tree

# Of these one writes "it" and "which".
THING = (r"(?:process|thread|program|adapter|node|peer|requester|responder|sender|receiver|producer|consumer|poller|owner|"
         r"successor|child|parent|caller|listener|function|queue pair)(?:s|es)?")
TYPE = r"\b(?:class|struct|enum class|enum) "

# (the private words, a pattern of them, the field's term, phrases in which they are standard). A rule is tried only on
# text that has one of its words.
RULES = [
    ("visit", r"\bvisit(?:s|ing)?\b", "hazard guard, hazard pointer held", r"std::visit\b|\bvisit\(\w"),
    ("home residence", r"\bhome\b|\bresidences?\b", "local node, node membership, owner",
     r"(?-i:HOME)|/home/|\"home\"|create-home|\bhome (?:director(?:y|ies)|folders?|pages?)"),
    ("door", r"\bdoor ?keepers?\b", "connection listener, acceptor", None),
    ("gate", r"\b(?-i:Gates?)\b|\bgate's\b|\bgates? of\b"
     r"|\b(?:the|its|a|whose|each|every|no|same|that|this|shut|shuts|opens?) gates?\b",
     "receive-queue state word; connection listener", None),
    ("stand", r"\bstand-ins?\b|\b(?-i:Stand Ins?)\b|\b(?:a|the|its|each) stand ins?\b",
     "remote requester context; placeholder device file; proxy handle", None),
    ("turn", r"\b(?:driver|service thread|program|poller|thread|process)'s (?:next )?turns?\b"
     r"|\bthe turn's\b|\bwhose turn\b|\bthe turn ends\b"
     r"|\b(?:has|have|had|takes?|took|taken|holds?|held|with|of|during) the turn\b|\b(?-i:k Rest Turn)\b"
     r"|\bturns of the (?:program|service thread|driver)\b|\bturns\.cc\b",
     "progress lock; a pass of the progress loop", None),
    ("feeder", r"\bfeeders?\b", "requester, producer", None),
    ("land", r"\b(?:landed|lands|landings?)\b", "eager data, bounce buffer; is placed, arrives", r"\blanding pages?\b"),
    ("slice", r"\bslices?\b", "chunk, segment", r"\btime(?:-| )?slices?\b|[.]slice\b|\bslice\("),
    ("birth life lives", r"\bbirths?\b|" + TYPE + r"(?-i:Life)\b|\b(?:life|lives) before\b"
     r"|\b(?:earlier|later|former) lives\b|\bwhole lives of\b"
     r"|\b(?:another|earlier|former|previous|next|last|new|second) life\b", "incarnation, generation", r"\bbirth time\b"),
    ("crowd", r"\bcrowds?\b", "multicast channel", None),
    ("approach ticket call",
     TYPE + r"(?-i:Approach|Ticket)\b|\b(?-i:k Approach|k Ticket)\b|\btickets?\b"
     r"|\bcall(?:ed|er) handshake\b|\baddress calls\b"
     r"|\b(?:take|takes|took|taken|answers?|answered|lost) (?:the|a|its|that) calls?\b",
     "connect, connection request; initiator", r"\b(?:session|TLS|kerberos) tickets?\b|\bticket (?:spin)?locks?\b"),
    ("short", r"\bshort way\b", "fast path", None),
    ("general", r"\bgeneral course\b", "slow path", None),
    ("sticky attention", r"\bsticky\b|\b(?-i:k Attention)\b|\battention (?:flags?|words?|bits?)\b",
     "pending flags, doorbell", r"\bsticky bits?\b|position:sticky"),
    ("maker", r"\bmakers?\b", "owner, creator", r"\bmakers? of adapters\b"),
    ("heir", r"\bheirs?\b", "successor", None),
    ("orphan", r"\borphans?\b", "orphaned", None),
    ("opening", r"\b(?:an|this|that|each|every|other|own|last|first) opening\b|\bopenings\b|" + TYPE + r"(?-i:Opening)\b",
     "shared-QP handle", r"\bopening (?:brace|bracket|parenthesis|quote)"),
    ("foreign", r"\bforeign (?:of|qps?|queue pairs?|handles?|owners?|process(?:es)?|peers?)\b",
     "remote, of another process", None),
    ("hand", r"\bin hand\b", "current WQE", None),
    ("hand", r"\bhand(?:-| )?overs?\b|\bhand-on\b", "fd passing", r"\bto hand over\b|\bhand over (?:the|a|an|its|to)\b"),
    ("part", r"\b(?:party|parties)\b", "CQE owner", r"\bthird(?:-| )(?:party|parties)\b"),
    ("last", r"\blast words\b|\b(?-i:Last Word)\b", "drain before close", None),
    ("question", r"\bquestions\b|\b(?:a|that|this|each|every|no|other|first|own|asked) question\b|\b(?-i:Question)\b",
     "request (of the control RPC)", r"\bquestion (?:mark|of|whether|which|how)\b|\b(?:open|frequently asked) questions\b"),
    ("standing", TYPE + r"(?-i:Standing)\b|\b(?:its|own|whose) standing\b|\bstanding of\b|\b(?-i:k Standing)\b",
     "owner status", None),
    ("room", r"\brooms\b|\broom's\b|\bfrom the room\b|\$\{room\}|\bfor room in\b|\| room \|", "module, folder", None),
    ("ever", r"\bwho(?:so)?ever\b|\bwhomever\b", "the process that, any process that", None),
    ("who", r"\b(?-i:Who)\b|\b(?:by|for|from|to|at|with|than|but|until|of) who\b|; (?:and )?who\b|\"who\b"
     r"|\b(?:the|as) one who\b|\bthose who\b|\b" + THING + r",? who\b", "the process that; it, which",
     r"\bWho\b[^.,;\n]*[?:]|#+ Who\b|\*\*Who\b|\bof who (?:is|has|was)\b|\bfor who(?:,| in)"),
    ("anew", r"\banew\b", "again", None),
    ("he him his", r"\b(?-i:[Hh]e|[Hh]im|[Hh]is|[Hh]imself)\b", "it, its", None),
    ("processor", r"\b(?:had|has|have) (?:had )?no processor\b", "was not scheduled", r"\bno processor's\b"),
]

# Names of tests and clauses, and what refers to them.
NAMES = [
    r"\bTEST(?:_F|_P)?\([^)]*\)",
    r"\bCONFORMANCE_TEST(?:_AS)?\([^{;]*\)",
    r"\b[a-z_0-9]+\.[A-Z]\w+\b",  # chapter.TestName
    r"\brow\(\"\w+\"",  # tests/network/rows
    r"\"[\w-]+(?:\.[\w-]+)+\"",  # a clause id
    r"^(?:id|name|tests|clause|chapter|source) = .*$",  # of clauses, expectations and planted faults
    r"\bBindingAnew\b",  # part of a test's name: tests/unit/engine/memory/threads_test.cc
]
# Standard in these files only: path, phrase.
LOCAL = [
    ("tests/pages/", r"^// \| .*$"),  # sentences of a manual page, and the tests for them
    ("tests/bench/", r"(?<![a-z])hand(?:[-_]|\s)?overs?\b"),  # of a cache line between two CPUs: names of yardsticks
]

FLAGS = re.IGNORECASE | re.MULTILINE
WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
COMMENT_LEADER = re.compile(r"^[ \t]*(?://+|/?\*+/?|#+)[ \t]?", re.MULTILINE)


def compiled(pattern):
    return pattern and re.compile(pattern.replace(" ", r"(?:\s+)"), FLAGS)


def blanked(pattern, text):
    """The text without what the pattern matches; its lines stay where they are."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


RULES = [(stems.split(), compiled(word), instead, compiled(standard)) for stems, word, instead, standard in RULES]
NAMES = re.compile("|".join(NAMES), re.MULTILINE)
LOCAL = [(start, re.compile(phrase, FLAGS)) for start, phrase in LOCAL]


def words_of(path, text):
    """The text with its names and quotations blanked and its identifiers split; as many lines as before."""
    text = blanked(NAMES, text)
    for start, phrase in LOCAL:
        if path.startswith(start):
            text = blanked(phrase, text)
    text = WORD_BORDER.sub(" ", text)
    return text if path.endswith(".md") else COMMENT_LEADER.sub("", text)


def hits(path, text):
    """(line, word, what to write instead) of each private word."""
    words = words_of(path, text)
    lower = words.lower()
    found = []
    for stems, word, instead, standard in RULES:
        if not any(stem in lower for stem in stems) or not word.search(words):
            continue
        rest = blanked(standard, words) if standard else words
        found += [(rest.count("\n", 0, hit.start()) + 1, " ".join(hit[0].split()), instead) for hit in word.finditer(rest)]
    return sorted(found)


def files(root):
    for path in [*sorted(root.glob("*.sh")), root / "README.md", root / "CMakeLists.txt",
                 *(path for folder in ROOTS for path in sorted((root / folder).rglob("*")))]:
        name = str(path.relative_to(root))
        if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts and name != OWN:
            yield name, path.read_text()


# The private sense: a line, and the word that is found.
PRIVATE = [
    ("// The visit that was seen is over.", "visit"),
    ("bool on_visit() const;", "visit"),
    ("Address home_interface(const std::vector<Address>& all) {", "home"),
    ("if (!at_home(*table)) return;", "home"),
    ("// The doorkeeper's thread.", "doorkeeper"),
    ("class Gate {", "Gate"),
    ("// Shuts the gate and flushes.", "the gate"),
    ("// ... of the\n// gate, when the rest was found right", "the gate"),
    ("struct StandIn {", "Stand In"),
    ("int stand_in_of(const Qp& qp);  // the stand-in", "stand-in"),
    ("// In the driver's turn.", "driver's turn"),
    ("// by the thread that has the turn", "has the turn"),
    ("// What the feeders write.", "feeders"),
    ("// What has landed is scattered.", "landed"),
    ("const bool lands = ordinary;", "lands"),
    ("constexpr uint32_t kSlice = 1 << 20;", "Slice"),
    ("// another life of the requester's", "another life"),
    ("enum class Life : uint8_t {", "enum class Life"),
    ("class Crowd;", "Crowd"),
    ("enum class Approach {", "enum class Approach"),
    ("CalledHandshake handshake_;", "Called Handshake"),
    ("// the lesser address calls", "address calls"),
    ("// The short way of small requests.", "short way"),
    ("// else the general course", "general course"),
    ("uint32_t sticky;", "sticky"),
    ("// a maker that died left it", "maker"),
    ("bool is_heir() const;", "heir"),
    ("// Adopts an orphan.", "orphan"),
    ("// An opening is a handle of its own.", "An opening"),
    ("ProxyQp& proxy = foreign_of(qp);", "foreign of"),
    ("// The WQE in\n// hand is flushed.", "in hand"),
    ("struct HandoverState {", "Handover"),
    ('constexpr const char* kSocketName = "hand-over";', "hand-over"),
    ("enum class Party {", "Party"),
    ("struct LastWord {", "Last Word"),
    ("// Waits for the peer's last words.", "last words"),
    ("class Question {", "Question"),
    ("// Answers a question by its bytes.", "a question"),
    ("enum class Standing {", "enum class Standing"),
    ("foreach(room IN LISTS rooms)", "rooms"),
    ("// Whoever polls it finds the QP in ERR.", "Whoever"),
    ("// Who polls is quicker.", "Who"),
    ("// left alone for 16 us by who polls", "by who"),
    ("// the peer, who is connected", "peer, who"),
    ("// What it sent before comes anew.", "anew"),
    ("// to know him by: his stream", "him"),
    ("// A thread that has had no processor", "has had no processor"),
]

# Ordinary English and standard terms: nothing is found.
STANDARD = [
    "return std::visit(overloaded, value);",
    "// Calls visit(object) for each.",
    "what was not visited is still there",
    'environment.update(HOME=str(folder / "home"))  # $HOME, /home/verbena, the home directory',
    "// propagates, aggregates; gated by a flag; int gate[2];",
    "// is looked up in the table; stands in front of it",
    "// each in turn; threads take turns; turns them into a table; it waits its turn; for (int turn = 0;;)",
    "// many queue pairs feed one SRQ; a line feed",
    "var all = [].slice.call(nodes); slice(3); a time slice",
    "// the packet life time, a lifetime; pthread_mutex_lock(&slot.life); lives as long",
    "// called by the caller; system calls; calls back; a ticket lock",
    ".filters{position:sticky} the sticky bit; pay attention",
    "// an orphaned QP; makers of adapters",
    "// opening a device; opening it again; ibv_qp_open_attr attr = opening();",
    "// a foreign key of the table; a foreign address is refused",
    "// on the other hand; the command in handling",
    "// it must be handed over with its bytes; two ways to hand over",
    "// a third party; a third-party library",
    "// the last word of the payload; split_last_word(local)",
    "// the device in question; another question mark",
    "enum class Answer : uint8_t {  // the answers to READs",
    "// standing still; long-standing",
    "// room for one more; headroom; has_room(position); watch_for_room()",
    "// Each line says who writes it.\n// Who writes what:\n// a user who is not root; users who ask",
    "# Who? a list of whose entries; nobody knows who it is",
    "TEST_F(ServesTest, ServesWhoeverReceivesAnew) {",
    'tests = "srq.ServesWhoeverReceives"',
    "// the shelf, this, when the thesis; HE",
    "RequestHasANewIdentifier, has no processor's cache",
]


def self_test():
    wrong = []
    for text, word in PRIVATE:
        found = [hit[1] for hit in hits("x.cc", text)]
        if word not in found:
            wrong.append(f"{word!r} is not found in {text!r}, but {found}")
    for text in STANDARD:
        wrong += [f"{hit[1]!r} is found in {text!r}" for hit in hits("x.cc", text)]
    examples = [words_of("x.cc", text) for text, _ in PRIVATE]
    if missed := [instead for _, word, instead, _ in RULES if not any(word.search(words) for words in examples)]:
        wrong.append(f"no example: {missed}")
    if hits("x.cc", "\n\n// anew\n") != [(3, "anew", "again")]:
        wrong.append("a hit is not given its line")
    if hits("tests/pages/x.cc", "// | anew |") or hits("tests/bench/x.cc", "hand_over"):
        wrong.append("found where it is standard")
    print("\n".join(wrong) or f"{len(PRIVATE)} private and {len(STANDARD)} standard phrases are told apart")
    return bool(wrong)


def main(argument):
    if argument == "--self-test":
        return self_test()
    number, found = 0, []
    for name, text in files(pathlib.Path(argument)):
        number += 1
        found += [f"{name}: \"{word}\" in its name: write {instead}" for _, word, instead in hits(name, name)]
        found += [f"{name}:{line}: \"{word}\": write {instead}" for line, word, instead in hits(name, text)]
    if number < FEWEST_FILES:
        found.append(f"{number} files: too few to be all")
    print("\n".join(found) or f"no private word in {number} files")
    return bool(found)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
