"""Machines as NVML knows them, for the command that draws them."""

from tests.topology.conftest import dgx_h100, h200, pairs, pcie_box

__all__ = ["dgx_h100", "h200", "pairs", "pcie_box"]
