"""A program of PyTorch: each rank says who it is, and adds up the ranks of all with gloo."""

import os
import socket
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
if len(sys.argv) > 1 and rank == int(sys.argv[1]):
    os._exit(9)
total = torch.tensor([rank])
dist.all_reduce(total)
sys.stdout.write(f"rank {rank} of {size} on {socket.gethostname()}: {int(total)}\n")
sys.stdout.flush()
dist.barrier()
dist.destroy_process_group()
