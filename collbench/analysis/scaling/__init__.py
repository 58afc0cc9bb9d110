"""How much faster more ranks are: efficiency with intervals, the laws that fit it, a verdict, and what would help."""
