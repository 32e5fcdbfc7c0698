"""`hal agent` on a machine of its own: what goes wrong is said in words, and a host that comes back needs no token."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.hosts import DEADLINE_S, WIRE_PORT, Cluster, Network, Ran, cluster_of, until


def test_a_machine_joins_goes_and_comes_back() -> None:
    """What cannot work is refused with what to do; then it joins, is switched off, and comes back as itself
    in another boot, with nothing but `hal agent`."""
    with Network() as network:
        cluster = Cluster(network, 1)
        head, worker = cluster.head, cluster.workers[0]
        cluster.start_head()
        controller = f"{head.address}:{WIRE_PORT}"

        def agent(*args: str, stdin: str = "") -> Ran:
            return worker.hal("agent", *args, check=False, stdin=stdin)

        token = head.hal("token", "create").out.strip()
        assert_refused(agent(), 2, "--controller is missing")
        assert_refused(agent("--controller", controller), 2, "has not joined yet", "hal token create")
        assert_refused(agent("--join", token[:-9], "--controller", controller), 2, "incomplete")
        assert_refused(agent("--join", token, "--controller", "10.77.0.1:1"), 5, "nobody serves", "--wire")
        foreign = token[:-43] + "A" * 43
        assert_refused(agent("--join", foreign, "--controller", controller), 4, "another HAL")
        assert_refused(agent("--join", token, "--controller", controller, "--name", "head"), 4, "a node 'head' already")

        joined = agent("--join", "-", "--controller", f"10.77.0.1:1,{controller}", "--label", "at=there", stdin=token)
        assert joined.code == 0, joined.err
        assert worker.hal("agent").code == 0  # harmless when it runs
        assert_refused(agent("--cpus", "2"), 6, "is running with other options")
        assert_refused(worker.hal("up", check=False), 6, "a HAL on another machine")

        worker.power_off()
        cluster.until_node(worker, "unreachable")
        cluster.rejoin(worker)
        cluster.until_node(worker, "up")
        with head.client() as client:
            job = client.submit(["true"], constraints="at=there", cpus=1, walltime="10m")
            assert job.wait(DEADLINE_S).state == "succeeded"


def test_a_certificate_is_renewed_while_a_gang_runs(tmp_path: Path) -> None:
    """At two thirds of its time, over the connection that is there: the gang, one step of which is on that host, goes
    on and ends in its first attempt."""
    with cluster_of(1, toml='node_certificate = "12s"\n') as cluster, cluster.head.client() as client:
        worker = cluster.workers[0]
        certificate = worker.home.node(worker.name).identity / "node.pem"
        first = certificate.read_bytes()
        wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
        gang = client.submit(["sh", "-c", wait], nodes=2, cpus=1, walltime="10m")
        until(lambda: gang.state == "running", "the gang runs")
        until(lambda: certificate.read_bytes() != first, "the certificate is another")
        assert cluster.node_state(worker) == "up"
        (tmp_path / "go").touch()
        gang.wait(DEADLINE_S)
        assert [str(one.state) for one in client.job(gang.id).task(0).attempts] == ["succeeded"]


def assert_refused(ran: Ran, code: int, *words: str) -> None:
    """With that exit code, one line that has these words, and nothing of the token."""
    assert ran.code == code, ran.err
    for word in words:
        assert word in ran.err
    assert "hal1." not in ran.err
    assert ran.out == ""
