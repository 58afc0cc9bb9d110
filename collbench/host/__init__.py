"""The host: foreign text and files, processes, signals, launchers, the cache."""
