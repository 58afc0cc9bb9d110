"""The machine that collbench runs on: foreign text and files, processes, signals, launchers, the cache."""
