"""One verdict in a line: is everything right and as fast as expected? With the evidence for machines that act on it."""
