"""Training steps: scaling, who waits for whom, overlap, and strategies of synchronisation."""
