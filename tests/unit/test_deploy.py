"""What deploy/ hands to others: its pods by Kubernetes' own schema, its cluster by Ray's own autoscaler, its
Slurm script by a machine that plays two nodes. docs/cluster.md says what was tried for real.
"""

import re
import signal
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests import ROOT
from tests.processes import wait_until

KUBERAY, SBATCH = ROOT / "deploy" / "kuberay", ROOT / "deploy" / "slurm" / "adder-search.sbatch"
KUBERNETES = "1.30"


def described(name):
    return yaml.safe_load((KUBERAY / f"{name}.yaml").read_text())


def clusters():
    return {"raycluster": described("raycluster")["spec"], "rayjob": described("rayjob")["spec"]["rayClusterSpec"]}


def templates(spec):
    return {"head": spec["headGroupSpec"]["template"]} | {
        group["groupName"]: group["template"] for group in spec["workerGroupSpecs"]
    }


PODS = [pytest.param(t, id=f"{name}-{group}") for name, s in clusters().items() for group, t in templates(s).items()]


@pytest.mark.parametrize("template", PODS)
def test_kubernetes_takes_every_pod(template):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"} | template.get("metadata", {})}
    kubernetes_validate.validate(pod | {"spec": template["spec"]}, KUBERNETES, strict=True)


def is_confined(may):
    """Whether a container's user is not root, by a number (the kubelet asks no name), and has no further rights."""
    is_plain = may["runAsNonRoot"] and min(may["runAsUser"], may["runAsGroup"]) > 0
    return is_plain and not may["allowPrivilegeEscalation"] and may["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("template", PODS)
def test_no_container_may_more_than_it_needs(template):
    assert template["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in template["spec"]["containers"]:
        may = container["securityContext"]
        assert is_confined(may) and may["readOnlyRootFilesystem"]
        assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]
        assert {"name": "HOME", "value": "/tmp"} in container["env"]
        assert set(container["resources"]["limits"]) >= {"cpu", "memory"}


def test_nor_may_the_autoscaler():
    assert is_confined(clusters()["raycluster"]["autoscalerOptions"]["securityContext"])


POLICIES = list(yaml.safe_load_all((KUBERAY / "networkpolicy.yaml").read_text()))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy["metadata"]["name"])
def test_kubernetes_takes_every_network_policy(policy):
    kubernetes_validate.validate(policy, KUBERNETES, strict=True)


def may_reach(labels):
    """The ports outside of its own pods that a pod with these labels may reach, by the policies that select it."""
    egress = [
        rule
        for policy in POLICIES
        if policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        and "Egress" in policy["spec"]["policyTypes"]
        for rule in policy["spec"]["egress"]
    ]
    assert egress, "no policy selects it: everything is open"
    own = [{"podSelector": {"matchLabels": {"app.kubernetes.io/part-of": "adder-search"}}}]
    assert all("ports" in rule or rule["to"] == own for rule in egress)
    return {port["port"] for rule in egress for port in rule.get("ports", [])}


@pytest.mark.parametrize("template", PODS)
def test_no_worker_reaches_a_database_or_the_world(template, request):
    kind = "head" if request.node.callspec.id.endswith("head") else "worker"
    ports = {"head": {53, 443, 5000, 5432, 6443}, "worker": {53}}
    assert may_reach(template["metadata"]["labels"] | {"ray.io/node-type": kind}) == ports[kind]


def secrets_of(container):
    mounted = [m["mountPath"] for m in container["volumeMounts"] if m["name"] == "secrets"]
    return mounted + [e["name"] for e in container.get("env", []) if "valueFrom" in e]


def test_the_secret_that_the_page_makes_has_what_the_pods_read_of_it():
    made = set(re.findall(r"--from-file=secrets/(\w+)", (KUBERAY / "kuberay.md").read_text()))
    for name in clusters():
        assert set(re.findall(r"/run/secrets/adder/(\w+)", (KUBERAY / f"{name}.yaml").read_text())) == made


def test_the_cluster_keeps_the_workers_that_it_begins_with():
    """A run takes the nodes that are there, and asks for none: those that an autoscaler took away stay away."""
    for group in clusters()["raycluster"]["workerGroupSpecs"]:
        assert group["minReplicas"] == group["replicas"] <= group["maxReplicas"], group["groupName"]


def test_no_task_runs_beside_a_secret():
    """Ray's containers have none; the driver's user is not the head's, so that it cannot be looked into."""
    pods, jobs = map(templates, clusters().values())
    head, driver = pods.pop("head")["spec"]["containers"]
    assert secrets_of(driver) == ["/run/secrets/adder", "RAY_AUTH_TOKEN"] and not secrets_of(head)
    assert driver["securityContext"]["runAsUser"] != head["securityContext"]["runAsUser"]
    for pod in pods.values():
        assert not any(map(secrets_of, pod["spec"]["containers"]))
    for pod in (*pods.values(), *jobs.values()):
        assert pod["spec"]["automountServiceAccountToken"] is False


# ---- what docs/cluster.md has a person type

PAGE = (ROOT / "docs" / "cluster.md").read_text()


def test_a_browser_may_write_to_the_server_that_the_page_starts():
    """MLflow refuses the POSTs of its own pages, unless they are from localhost or an origin that it was given."""
    (command,) = re.findall(r"`(mlflow server [^`]*)`", PAGE)
    assert re.search(r"--allowed-hosts (\S+) --cors-allowed-origins http://\1( |$)", " ".join(command.split()))


def test_rays_token_is_its_owners_alone_and_where_ray_looks_for_it():
    """Ray makes it, and scp copies it, with what modes the umask leaves."""
    typed = "".join(re.findall("^    .*\n", PAGE.partition("\n## Four")[2].partition("\n## ")[0], re.MULTILINE))
    assert 0 < typed.find("umask 077") < typed.find("ray get-auth-token")
    places = re.findall(r"\S*\.ray\b", typed)
    assert set(places) == {"~/.ray", "head:.ray"}, places


# ---- Slurm: two nodes that are this machine

SRUN = 'echo "srun $SRUN_CPUS_PER_TASK" >> "$CALLS"\nwhile [[ "${1:-}" == --* ]]; do shift; done\nexec "$@"'
RAY = r"""
echo "ray $*" >> "$CALLS"
case "$1" in
    start) echo "pipes ${CUDA_MPS_PIPE_DIRECTORY:-none}" >> "$CALLS"
           folder="$(sed 's/.*--temp-dir=\([^ ]*\)\/r .*/\1/' <<< "$* ")"
           trap 'echo ended >> "$CALLS"; exit' TERM; touch "$folder/log"
           echo "folder $(stat -c %a "$folder") $folder" >> "$CALLS"; while :; do sleep 0.1; done;;
    status) sed -n 's/^folder .*/ 1 node_x/p' "$CALLS";;
esac
"""
RUN = """
echo "token $(stat -c '%a %F' "$RAY_AUTH_TOKEN_PATH" "$(dirname "$RAY_AUTH_TOKEN_PATH")" | tr '\\n' ' ')" >> "$CALLS"
echo "run $RAY_ADDRESS $RAY_AUTH_MODE $(wc -c < "$RAY_AUTH_TOKEN_PATH") $*" >> "$CALLS"
trap 'echo stopped >> "$CALLS"; exit 130' INT
[ "$2" != long.yaml ] || for _ in {1..300}; do sleep 0.1; done
exit 3
"""


@pytest.fixture
def job(tmp_path):
    """A started job's script; what it calls writes to the file `calls`."""
    programs = {"srun": SRUN, "scontrol": "printf 'one\\ntwo\\n'", "ray": RAY, "adder-search": RUN}
    programs["sleep"] = '/bin/sleep "${1/#1/0.05}"'  # and not a second between two looks
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    given = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls"),
        "ADDER_SEARCH_HOME": str(tmp_path / "home"), "SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "one,two",
        "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "8", "SLURM_GPUS_ON_NODE": "4",
    }  # fmt: skip

    def start(*words, **more):
        return subprocess.Popen(
            ["bash", SBATCH, *words], env=given | more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    return start


def called(folder):
    return (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []


@pytest.mark.parametrize("mps", [None, "starts", "fails"])
def test_a_slurm_job_runs_a_study_on_its_nodes(mps, job, tmp_path):
    """Ray on every node with the job's CPUs, which each srun is told, and GPUs, a token of its own, an MPS where it
    is asked for and starts (else Ray's workers do not look for it), and the run's exit code.
    """
    program = tmp_path / "bin" / "nvidia-cuda-mps-control"
    program.write_text(f'#!/bin/sh\n[ "$1" ] || echo "to mps: $(cat)" >> "$CALLS"\n[ {mps} = starts ]\n')
    program.chmod(0o755)
    planted = tmp_path / "home" / "ray-token-77"  # by somebody who knows the job's number
    planted.parent.mkdir()
    planted.write_text("planted")
    process = job("studies/57p.yaml", "--max-hours", "1", **({"ADDER_SEARCH_MPS": "1"} if mps else {}))
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 3, said
    lines = called(tmp_path)
    heads = [line for line in lines if line.startswith("ray start") and " --head " in line]
    others = [line for line in lines if line.startswith("ray start") and " --head " not in line]
    assert len(heads) == len(others) == 1
    assert all("--num-cpus=8 --num-gpus=4" in line for line in (*heads, *others)) and lines.count("srun 8") == 3
    address = re.search(r"--address=(\S+:20077)$", others[0])[1]
    (run,) = [line for line in lines if line.startswith("run ")]
    assert run == f"run {address} token 64 run studies/57p.yaml --max-hours 1"
    assert "token 600 regular file 700 directory " in lines
    folders = sorted(line.split()[2] for line in lines if line.startswith("folder 700 "))
    assert len(folders) == 2 and not any(Path(folder).exists() for folder in folders)
    pipes = sorted(line.split()[1] for line in lines if line.startswith("pipes "))
    assert pipes == (folders if mps == "starts" else ["none"] * 2)
    assert lines.count("to mps: quit -t 5") == (2 if mps == "starts" else 0)
    assert lines.count("ended") == 2
    assert list(planted.parent.iterdir()) == [planted] and planted.read_text() == "planted"


def test_a_slurm_job_whose_time_is_up_stops_its_run(job, tmp_path):
    process = job("long.yaml")
    wait_until(lambda: any(line.startswith("run ") for line in called(tmp_path)), "the run has not begun")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert called(tmp_path)[-3:].count("ended") == 2 and "stopped" in called(tmp_path)
