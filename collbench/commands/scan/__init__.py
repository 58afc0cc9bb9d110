"""Who of many ranks or nodes is slow."""
