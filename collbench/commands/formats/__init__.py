"""Files of other tools: a module for each format, `import`, `export`, and the programs of nccl-tests."""
