"""Training steps: scaling, overlap, stragglers, and strategies of synchronisation."""
