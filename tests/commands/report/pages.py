"""Made-up run files, their pages, and what is read back from a page."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from collbench.commands.report import command as reports
from collbench.results import Measurement, Result
from collbench.runfile.schema import Header
from collbench.runfile.store import NAME, Writer, read
from tests.conftest import measurement

SIZES = [8 * 4**power for power in range(10)]
SCRIPT = "<script>document.title='owned'</script>"


def times(latency: float, rate: float, name: str) -> Iterator[Measurement]:
    for nbytes in SIZES:
        seconds = latency + nbytes / rate
        yield measurement(name, tuple(seconds * (1 + 0.001 * step) for step in range(9)), nbytes=nbytes)


def write(folder: Path, *results: Result, header: dict[str, object] | None = None) -> Path:
    with Writer(folder) as writer:
        writer.header(Header.from_json({"topology": {"name": "here"}, **(header or {})}))
        for result in results:
            writer.append(result)
        writer.end("2026-01-01T00:00:00+00:00", 0)
    return folder / NAME


def built(*paths: Path) -> str:
    return reports.build([read(path) for path in paths])


def data_of(page: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    loaded: dict[str, object] = json.loads(found[1])
    return loaded


def without_library(page: str) -> str:
    return re.sub(r'(<script type="text/plain" id="library"[^>]*>)[^<]*', r"\1", page)


class Text(HTMLParser):
    """Elements with their attributes, and text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


class Tables(HTMLParser):
    """Tables as rows of texts; a cell that spans several columns has its text in the first of them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._open = False
        self.feed(re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._span = int(dict(attrs).get("colspan") or 1)
            self.tables[-1][-1] += [""] * self._span
            self._open = True
        elif tag == "span" and self._open and "bar" in (dict(attrs).get("class") or ""):
            self.tables[-1][-1][-1] += "bar"

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("td", "th", "tr", "table")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.tables[-1][-1][-self._span] += data


def empty_columns(page: str) -> list[str]:
    return [
        heading
        for head, *rows in Tables(page).tables
        for place, heading in enumerate(head)
        if rows and not any(row[place].strip() for row in rows if place < len(row))
    ]
