"""The ranks of a run and what they live on, listed as nccl-tests does."""

import re
from typing import Any

from collbench.formats.exported import Selection, mapping
from collbench.formats.source import clean


def listed(selection: Selection, ranks: int) -> list[str]:
    """A line for each rank; process, device and bus are 0 where the run file does not say them."""
    return [
        f"#  Rank {each['rank']:2d} Group {0:2d} Pid {0:6d} on {each['hostname']:>10} device {each['device']:2d} "
        f"[{each['device_hex'][:10]}] {each['device_info']}"
        for each in devices(selection, ranks)
    ]


def devices(selection: Selection, ranks: int) -> list[dict[str, Any]]:
    """The same as fields, by the names of nccl-tests' JSON."""
    host = clean(selection.fact("environment", "host") or "unknown", 64).replace(" ", "_")
    found = selection.fact("topology", "gpus") or selection.fact("topology", "sockets")
    known = [mapping(each) for each in found] if isinstance(found, list) and found else [{}]
    name = _kind(selection)
    return [
        {
            "rank": rank,
            "group": 0,
            "pid": 0,
            "hostname": clean(_of(known, rank).get("host") or host, 64).replace(" ", "_"),
            "device": rank % len(known) if len(known) > 1 else 0,
            "device_hex": "0000:00:00",
            "device_info": clean(_of(known, rank).get("name") or name, 64),
        }
        for rank in range(ranks)
    ]


def _of(known: list[Any], rank: int) -> Any:
    return known[rank % len(known)]


def _kind(selection: Selection) -> str:
    """What all ranks live on, from the topology's name: `8 x NVIDIA H100 on 2 nodes`."""
    name = str(selection.fact("topology", "name") or "unknown")
    found = re.fullmatch(r"\d{1,9} x ([^+]*?)(?: on \d+ nodes)?", name)
    return found[1] if found else name
