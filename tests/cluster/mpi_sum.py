"""A program of MPI without a compiler: each rank says who it is, and adds up the ranks of all, over the network."""

import ctypes
import os
import socket
import sys

mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
handle = lambda name: ctypes.byref(ctypes.c_char.in_dll(mpi, name))  # noqa: E731
world, number, add = handle("ompi_mpi_comm_world"), handle("ompi_mpi_int"), handle("ompi_mpi_op_sum")
mpi.MPI_Init(None, None)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
if len(sys.argv) > 1 and rank.value == int(sys.argv[1]):
    os._exit(9)
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, number, add, world)
sys.stdout.write(f"rank {rank.value} of {size.value} on {socket.gethostname()}: {total.value}\n")
sys.stdout.flush()
mpi.MPI_Finalize()
