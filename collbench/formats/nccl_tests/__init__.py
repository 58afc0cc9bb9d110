"""What nccl-tests prints: its text, and the JSON of its newer releases."""
