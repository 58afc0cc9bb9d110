"""Find the slow one of many ranks or nodes, or the slow part between them."""
