"""What NCCL itself reckons with: its channels, its cost table, its choice."""
