"""The network between nodes: flows that share its links fairly, and what that leaves of the NICs' rate."""
