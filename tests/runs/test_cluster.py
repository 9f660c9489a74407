"""Real Ray: a cluster of two nodes on this machine, one of which is killed in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ubex import cli
from ubex.runs import cluster

EXPERIMENT = "Shrinkage(seeds=2, methods=('exact-ube', 'pombu'), sizes=(4,), episodes=60)"

TWO_NODES = f"""
import json, sys, threading, time
from pathlib import Path
from ray.cluster_utils import Cluster
from rich.console import Console
from ubex.experiments.shrinkage import Shrinkage
from ubex.runs import runner

out = Path(sys.argv[1])
cluster = Cluster(initialize_head=True, head_node_args={{"num_cpus": 1}})
victim = cluster.add_node(num_cpus=1)
killed = []

def kill():
    while len(list(out.glob("cells/*/checkpoints-*/*.ckpt"))) < 3:  # two jobs are under way, one on each node
        time.sleep(0.05)
    cluster.remove_node(victim, allow_graceful=False)
    killed.append(len(list(out.glob("cells/*/*/done.json"))))

threading.Thread(target=kill, daemon=True).start()
summary = runner.run({EXPERIMENT}, out, Console(width=200), runner.Options(backend="ray", address=cluster.address))
cluster.shutdown()
print(json.dumps({{"finished": summary.finished, "failed": summary.failed, "done_when_killed": killed}}))
"""

LOCAL = f"""
import sys
from pathlib import Path
from rich.console import Console
from ubex.experiments.shrinkage import Shrinkage
from ubex.runs import runner
if __name__ == "__main__":
    runner.run({EXPERIMENT}, Path(sys.argv[1]), Console())
"""

LISTENERS = """
import json
from ubex.runs import cluster

ray = cluster.connect(None, 1)
import psutil  # Ray brings it along

here = psutil.Process()
sockets = [one for process in (here, *here.children(recursive=True)) for one in process.net_connections("inet")]
print(json.dumps([one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN]))
ray.shutdown()
"""


def python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_two_nodes_one_killed_gives_the_local_results(tmp_path: Path) -> None:
    last = python(TWO_NODES, str(tmp_path / "ray")).strip().splitlines()[-1]
    said = json.loads(last)
    assert (said["finished"], said["failed"]) == (4, 0)
    assert said["done_when_killed"], "the node was never killed"
    assert said["done_when_killed"][0] < 4
    python(LOCAL, str(tmp_path / "local"))
    for name in ("results.csv", "curves.csv"):
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


def test_a_local_cluster_listens_on_this_machine_alone() -> None:
    found = json.loads(python(LISTENERS).strip().splitlines()[-1])
    assert len(found) > 2
    assert {address.removeprefix("::ffff:") for address in found} == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("address", "words"),
    [("127.0.0.1:1", "no Ray cluster could be reached at 127.0.0.1:1: Connection refused"), ("nowhere", "must be HOST:PORT")],
)
def test_no_cluster_at_the_address_is_one_line(
    address: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["run", "toy", "--backend", "ray", "--address", address, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert len(said.splitlines()) == 1


def test_missing_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install ubex\[ray\]"):
        cluster.connect(None, None)
