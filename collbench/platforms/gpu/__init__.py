"""Ranks on NVIDIA GPUs, by CuPy, NCCL and CUDA's driver."""
