"""The header of a run file: typed whatever stands in it, and written back as it was."""

from typing import Any

import pytest

from collbench.runs.header import Environment, ForeignTest, Header, ImportedPart

WHOLE: dict[str, Any] = {
    "collbench": "0.1",
    "command": ["collbench", "sweep"],
    "started": "2026-01-01T00:00:00+00:00",
    "environment": {"host": "vm", "versions": {"mpi": "4.2"}, "variables": {}},
    "topology": {"name": "2 GPUs", "ranks": 2, "shared": False, "gpus": [{"name": "H100", "index": 0}], "links": []},
    "sweep": {"collectives": ["allreduce"], "sizes": [8, 16], "ranks": 2, "spin": "auto", "sampling": {"budget": 0.5}},
    "imported": {
        "tool": "osu",
        "complete": False,
        "tests": [{"format": "osu", "layout": {"a": [1]}}],
    },
    "interleaved": {"id": "7", "setting": "", "cores": [0, 1]},
}
ODD: list[Any] = [5, None, "text", True, [1, [2]], {"a": {"b": 1}}, 1.5, [{"name": 3}]]


def test_a_header_is_read_by_the_names_of_its_parts() -> None:
    """Typed, to the last part."""
    header = Header.from_json(WHOLE)
    assert (header.environment.host, header.environment.versions) == ("vm", {"mpi": "4.2"})
    assert (header.topology.ranks, header.topology.gpus[0].name) == (2, "H100")
    assert (header.sweep.collectives, header.sweep.sampling) == (("allreduce",), {"budget": 0.5})
    assert header.imported.tests == (ForeignTest(format="osu", layout={"a": [1]}),)
    assert header.interleaved.cores == (0, 1)


@pytest.mark.parametrize("value", ODD, ids=str)
@pytest.mark.parametrize("name", [*WHOLE, "weather", "rest"])
def test_what_is_of_another_type_is_empty_and_kept(name: str, value: object) -> None:
    """Unknown fields, too; reading what was written gives the same header."""
    for record in ({name: value}, WHOLE | {name: value}, {"topology": {name: value, "name": value, "ranks": value}}):
        header = Header.from_json(record)
        assert header.to_json() == record
        assert Header.from_json(header.to_json()) == header
    assert isinstance(Header.from_json({"topology": {"ranks": True}}).topology.ranks, int)
    assert Header.from_json({"topology": {"ranks": True}}).topology.ranks == 0


def test_numbers_among_versions_are_read_as_text_and_written_as_they_were() -> None:
    """NCCL's version is a number for some tools."""
    environment = Environment.from_json({"versions": {"nccl": 23007, "odd": [1]}})
    assert environment.versions == {"nccl": "23007"}
    assert environment.to_json() == {"versions": {"nccl": 23007, "odd": [1]}}


def test_a_header_that_is_built_says_what_it_was_given() -> None:
    """What is as it is by default need not be written."""
    header = Header(imported=ImportedPart(tool="osu", tests=(ForeignTest(complete=False),)))
    assert header.to_json() == {"imported": {"tool": "osu", "tests": [{"complete": False}]}}
