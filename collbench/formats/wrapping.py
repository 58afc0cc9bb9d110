"""What stands round the lines of a log and is not its own: launchers' tags, time stamps, quotes, bullets, colours.

Lines are given bare to the formats, which then need not know who ran the program or where its output was pasted.
Every expression here takes time in proportion to the line: none may try the same characters in several ways.
"""

import html
import re

ESCAPES = re.compile(r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
MARKUP = re.compile(r"</?(?:br|p|pre|code|span|div|td|tr|th|li|font|b|strong|samp)\b[^<>]{0,200}>", re.IGNORECASE)
UNSEEN = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
_DAY, _ZONE = r"\d{4}[-/]\d\d[-/]\d\d", r"(?:Z|[+-]\d\d:?\d\d)?"
_WHEN = rf"{_DAY}[T ]{_CLOCK}{_ZONE}"
_NUMBER = r"(?:\d[\d.]*+(?:e[+-]\d++)?+|N/A)"
# A comment, or a row or its rest:
_OWN = rf"(?=\s*+(?:#|\[\d{{1,9}},\d|{_NUMBER}\s++(?:{_NUMBER}(?!\S)|\w)|{_NUMBER}\s*+$))"
TAGS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*+\[[^\[\]\s]{0,80},\d{1,9}\](?:<std(?:out|err|diag)>)?:\s?+",  # mpirun --tag-output, also of Open MPI 5
        r"\s*+(?:\[\d{1,9}\]|<std(?:out|err)>):?\s?+" + _OWN,  # mpiexec -prepend-rank, IBM's mpirun
        r"\s*+\d{1,9}:(?: |$)",  # srun --label
        r"\s*+\[(?:pod/)?[\w./-]{1,200}(?: [\w.-]{1,80})?\]:?\s" + _OWN,  # kubectl logs --prefix
        r"\s*+[\w.@/-]{1,200}:\s" + _OWN,  # pdsh, clush, ansible
        r"\s*+[\w.@/ -]{1,200}\|\s" + _OWN,  # docker compose, stern
        rf"\s*+[A-Z][a-z]{{2}} +\d{{1,2}} {_CLOCK} \S{{1,80}} \S{{1,80}}:\s" + _OWN,  # journals
        rf"\s*+[\[(]?{_WHEN}[\])]?(?: (?:std(?:out|err) [FP]|[-:|]|INFO|DEBUG)){{1,3}}:?\s" + _OWN,  # loggers
        rf"\s*+[\[(]?{_DAY}T{_CLOCK}{_ZONE}[\])]?:?\s" + _OWN,  # kubectl, continuous integration
        rf"\s*+[\[(]?{_WHEN}[\])]?:?\s(?=\s*+#)",  # before a row it is the row's own
        rf"\s*+[\[(]?{_CLOCK}[\])]:?\s" + _OWN,
        r"\s*+(?:>|[*+-]|•|//|\$|\d{1,3}\.)\s" + _OWN,  # quotes, bullets, fences
        r"\s*+(?:>\s?+){1,9}",
    )
)
MOST = 6  # wrappings of one line that are taken off


def bare(line: str) -> str:
    """A line without what others put round it; spaces between its words stay as they are."""
    if "\x1b" in line:
        line = ESCAPES.sub("", line)
    if "\r" in line:  # what a terminal would have left there
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    if "<" in line:
        line = MARKUP.sub("", line)
    if "&" in line:
        line = html.unescape(line)
    if "`" in line:
        line = line.replace("`", " ")
    if not line.isascii():
        line = UNSEEN.sub("", line).replace("\u00a0", " ")
    for _ in range(MOST):
        ends = (match.end() for tag in TAGS if (match := tag.match(line)))
        end = next((end for end in ends if end), 0)
        if not end:
            return line
        line = line[end:]
    return line


def cells(line: str) -> str:
    """A line of a table in Markdown as words between blanks; other lines as they are."""
    if line.count("|") < 8:
        return line
    return line.replace("|", " ").replace("`", " ").replace("*", " ")
