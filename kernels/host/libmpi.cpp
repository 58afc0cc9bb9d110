// An empty library under the name that mpi4py needs, linked with an MPI library that has another one: Debian's MPICH is
// libmpich.so.12.  Linked by collbench/platforms/cpu/mpi_libraries.py.
