"""What can be wrong with a result: in words, and as it stands in a run file."""

from collbench.results import Implausible, Mismatch, Overrun, flaw_fields, to_flaw

FLAWS = {
    "rank 1, element 7 (chunk 0): got 3.5, expected 4.5; 12 wrong on this rank": Mismatch(1, 7, 0, "3.5", "4.5", 12),
    "call 3 of 16 back to back, rank 1, element 7 (chunk 0): expected 4.5; 12 wrong on this rank": Mismatch(
        1, 7, 0, "", "4.5", 12, call=2, calls=16
    ),
    "rank 0: 16 bytes written past the end of the send buffer, the nearest at +8": Overrun(0, "send buffer", 8, 16),
    "rank 2: 1 byte written before the start of the receive buffer, the nearest at -1": Overrun(
        2, "receive buffer", -1, 1
    ),
    "implausible: too good": Implausible(1e-12, "too good"),
}


def test_a_flaw_survives_the_run_file_and_readers_that_know_mismatches_only_find_one() -> None:
    for text, flaw in FLAWS.items():
        assert str(flaw) == text
        assert to_flaw(flaw_fields(flaw)) == flaw, text
        assert Mismatch(**flaw_fields(flaw)["mismatch"]).wrong == flaw.wrong, text
    newer = flaw_fields(Implausible(1e-12, "too good")) | {"flaw": {"kind": "haunted", "by": "ghosts"}}
    assert isinstance(to_flaw(newer), Mismatch)
