"""What collbench's commands do, as functions: `collbench.sweep`, `predict`, `read`, `compare`, `diagnose`, `plot`."""
