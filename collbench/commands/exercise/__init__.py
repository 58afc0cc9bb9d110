"""Ten exercises: kernels with a hole, and the judge of what students fill in."""
