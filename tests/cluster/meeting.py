"""A parallel program as PyTorch's `env://` begins one: rank 0 listens at MASTER_ADDR and MASTER_PORT, others connect,
and each learns the sum of all ranks. The rank that an argument names fails afterwards."""

import os
import select
import socket
import sys

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
DEADLINE_S = 60.0


def come() -> socket.socket:
    """Rank 0 may begin later."""
    for _ in range(1_200):
        try:
            return socket.create_connection(place, timeout=DEADLINE_S)
        except ConnectionRefusedError:
            select.select([], [], [], DEADLINE_S / 1_200)
    raise SystemExit("rank 0 does not listen")


if rank == 0:
    total = 0
    with socket.create_server(place, backlog=size) as listener:
        listener.settimeout(DEADLINE_S)
        peers = [listener.accept()[0] for _ in range(size - 1)]
    for peer in peers:
        total += int(peer.recv(16))
    for peer in peers:
        peer.sendall(f"{total}".encode())
else:
    peer = come()
    peer.sendall(f"{rank}".encode())
    total = int(peer.recv(16))
if sys.argv[1:] == [str(rank)]:
    raise SystemExit(9)
sys.stdout.write(f"rank {rank} of {size} on {os.environ['HAL_NODE']} met at {place[0]}: {total}\n")
