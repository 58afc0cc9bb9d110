"""What the links between nodes carry, as flows that share them fairly."""
