"""Where the time of an operation goes: kernels traced, a timeline, a trace for Perfetto."""
