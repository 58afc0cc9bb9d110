"""The exercises: kernels with a hole (`puzzles/`), and the judge of what students fill in.

`races` runs kernels as streams of calls under ThreadSanitizer, `findings` says what went wrong there, `judge` goes
through the stages of a check, `records` knows the puzzles and the folders that students work in.
"""
