"""Connections between ranks: discovered (`Topology`) or described in a file (`System`).

Facts are stored, in SI units: bytes, and bytes per second of one direction.  Rates, names and caveats follow from them.
"""
