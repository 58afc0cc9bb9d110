"""Records in files, messages and pickles."""

import json
import pickle
from copy import deepcopy

import pytest

from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, FOREIGN_DATATYPES, FOREIGN_REDUCTIONS, NONE, REDUCTIONS, Datatype
from collbench.records import convert, encoded, plain
from collbench.results.disturbed import Scheduling
from collbench.runfile.schema import Environment
from tests.conftest import case

REGISTERED = (*COLLECTIVES.values(), *DATATYPES.values(), *FOREIGN_DATATYPES.values(), NONE, *REDUCTIONS.values())


def test_what_is_registered_is_written_by_name_and_is_the_same_object_again() -> None:
    for value in (*REGISTERED, *FOREIGN_REDUCTIONS.values()):
        assert plain(value) == value.name
        assert convert(value.name, type(value)) is value
        assert pickle.loads(pickle.dumps(value)) is value
        assert deepcopy(value) is value
    for wrong, reason in (("float8", "unknown dtype 'float8'"), (8, "expected a name, got int")):
        with pytest.raises(ValueError, match=reason):
            convert(wrong, Datatype)


def test_a_record_is_read_as_it_was_written_whatever_its_texts_hold() -> None:
    assert Scheduling().to_json() == {}, "what is as it is by default is left out"
    assert case().from_json(case().to_json()) == case()
    odd = Environment(host="caf\udce9", variables={"A": "\x1b\n"})
    assert json.loads(encoded(odd)) == {"host": "caf\udce9", "variables": {"A": "\x1b\n"}}
    assert encoded(odd).count(b"\n") == 1, "one line"
