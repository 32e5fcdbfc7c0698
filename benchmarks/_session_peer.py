"""One peer of sessions, in an environment that has it: `_session_peer.py NAME TASKS`, in its usual form, two workers.

No-op tasks, one future or reference each: tasks a second of many at once, and the median round trip of one. Prints one
JSON line. Imports nothing of HAL.
"""

import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time

WORKERS = 2
ROUND_TRIPS = 200


def noop(value):
    return value


def measure(run_all, run_one, tasks):
    run_all(range(WORKERS * 10))
    began = time.perf_counter()
    if list(run_all(range(tasks))) != list(range(tasks)):
        sys.exit("results are not those of the tasks")
    rate = tasks / (time.perf_counter() - began)
    times = []
    for number in range(ROUND_TRIPS):
        began = time.perf_counter()
        run_one(number)
        times.append(time.perf_counter() - began)
    print(json.dumps({"rate": rate, "round_trip_ms": statistics.median(times) * 1e3}), flush=True)


def with_pool(tasks):
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(WORKERS) as pool:
        measure(
            lambda items: [future.result() for future in [pool.submit(noop, item) for item in items]],
            lambda item: pool.submit(noop, item).result(),
            tasks,
        )


def with_multiprocessing(tasks):
    with multiprocessing.Pool(WORKERS) as pool:
        measure(
            lambda items: [one.get() for one in [pool.apply_async(noop, (item,)) for item in items]],
            lambda item: pool.apply(noop, (item,)),
            tasks,
        )


def with_dask(tasks):
    from distributed import Client

    with Client(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as client:
        measure(
            lambda items: client.gather(client.map(noop, list(items), pure=False)),
            lambda item: client.submit(noop, item, pure=False).result(),
            tasks,
        )


def with_ray(tasks):
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(noop)
    measure(
        lambda items: ray.get([remote.remote(item) for item in items]),
        lambda item: ray.get(remote.remote(item)),
        tasks,
    )
    ray.shutdown()


def with_parsl(tasks):
    import parsl
    from parsl.config import Config
    from parsl.executors import HighThroughputExecutor

    executor = HighThroughputExecutor(max_workers_per_node=WORKERS, address="127.0.0.1")
    with parsl.load(Config([executor], run_dir=tempfile.mkdtemp())):
        app = parsl.python_app(noop)
        measure(
            lambda items: [future.result() for future in [app(item) for item in items]],
            lambda item: app(item).result(),
            tasks,
        )


if __name__ == "__main__":
    os.chdir(tempfile.gettempdir())
    globals()[f"with_{sys.argv[1]}"](int(sys.argv[2]))
