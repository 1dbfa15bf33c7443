"""What docker-compose.yml promises, read off the file (tests/slow/compose.sh tries it on an engine), and that
requirements/ has the hashes of what is installed.
"""

import re
import shutil
import subprocess
from configparser import ConfigParser

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import ROOT
from tests.processes import LOOPBACK
from tests.services import Postgres, need_services, started, write_secret

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
SETUP = ConfigParser()
SETUP.read(ROOT / "setup.cfg")
WORKERS = ["ray-worker", "ray-worker-gpu"]
PLACED = [*WORKERS, "ray-head"]  # where a Ray task can be placed
IMAGE = (ROOT / "Dockerfile").read_text()


def networks(service):
    """The networks that a service is on, those of a service whose network it shares among them."""
    mode = SERVICES[service].get("network_mode", "")
    if mode.startswith("service:"):
        return networks(mode.removeprefix("service:"))
    return set() if mode == "none" else set(SERVICES[service].get("networks", ["default"]))


def mounts(service):
    return {str(volume).split(":")[0] for volume in SERVICES[service].get("volumes", [])}


def test_workers_share_a_network_with_ray_and_with_nothing_else():
    for worker in WORKERS:
        assert networks(worker) == {"ray"}
    assert COMPOSE["networks"]["ray"]["internal"], "nor with the world outside"
    assert {name for name in SERVICES if "ray" in networks(name)} == {*PLACED, "search"}
    assert not networks("postgres") and not networks("migrate"), "a database without a port"
    assert networks("mlflow") & networks("search") == {"tracking"}
    assert set().union(*map(networks, SERVICES)) == set(COMPOSE["networks"]), "no default network, none unused"


@pytest.mark.parametrize("name", PLACED)
def test_no_task_is_placed_where_a_secret_can_be_read(name):
    service = SERVICES[name]
    assert service["secrets"] == ["ray_token"]
    assert "postgres-socket" not in mounts(name)
    assert not any("PASS" in variable for variable in service["environment"])


@pytest.mark.parametrize("name", [name for name in SERVICES if networks(name)])
def test_no_service_asks_a_proxy_for_another(name):
    """Every container is given the one of ~/.docker/config.json."""
    for variable in ("NO_PROXY", "no_proxy"):
        assert SERVICES[name]["environment"][variable].split(",") == [LOOPBACK, "localhost", "mlflow", "ray-books"]


def test_what_brings_the_stack_up_again_keeps_its_workers():
    """`up` alone, with the number in .env; and the upgrade takes the volume of this project, whatever its name."""
    assert SERVICES["ray-worker"]["scale"] == "${RAY_WORKERS:-1}"
    page, upgrade = ((ROOT / name).read_text() for name in ("docs/cluster.md", "deploy/postgresql-upgrade.md"))
    assert "| `RAY_WORKERS`" in page and "--scale" not in page + upgrade
    assert "adder-search_" not in upgrade and 'docker volume rm "$volume"' in upgrade


# ---- what users have: modes of files, passwords of their own


def test_containers_can_read_what_is_mounted_of_a_checkout_that_is_its_owners_alone(tmp_path):
    for folder in ("docker", "studies"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    subprocess.run(["chmod", "-R", "go=", tmp_path], check=True)
    subprocess.run(["bash", "docker/secrets.sh"], cwd=tmp_path, check=True, capture_output=True)
    mounted = {tmp_path / place for name in SERVICES for place in mounts(name) if place.startswith("./")}
    assert len(mounted) == 5
    for path in mounted.union(*(place.rglob("*") for place in mounted)):
        needed = 0o055 if path.is_dir() else 0o044
        assert path.stat().st_mode & needed == needed, path
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700


def test_a_user_by_number_can_run_what_the_image_has_of_such_a_checkout():
    """By number: of a name Kubernetes does not know that it is not root's."""
    last = IMAGE.rpartition("\nFROM ")[2]
    copied = re.findall(r"^COPY (?!--)\S+ (\S+)$", last, re.MULTILINE)
    assert copied and all(f"\nRUN chmod 755 {file}\n" in last for file in copied)
    assert re.findall(r"^USER (.*)", last, re.MULTILINE) == ["1000:1000"]


def test_digests_leave_what_else_is_in_the_file_and_its_mode(tmp_path):
    docker, file = tmp_path / "docker", tmp_path / ".env"
    docker.write_text('#!/bin/sh\n[ "$1" = pull ] || echo "${5%%:*}@sha256:new"\n')
    docker.chmod(0o755)
    file.write_text("A=1\nPOSTGRES_IMAGE=old\nB=2\n")
    file.chmod(0o640)
    words = ["bash", ROOT / "docker/digests.sh", file]
    for _ in range(2):
        subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, capture_output=True)
        assert file.read_text() == "A=1\nB=2\nPOSTGRES_IMAGE=postgres@sha256:new\nPYTHON_IMAGE=python@sha256:new\n"
    assert file.stat().st_mode & 0o777 == 0o640 and {*tmp_path.iterdir()} == {docker, file}


class Empty(Postgres):
    DATABASES = ()


def test_the_databases_users_have_the_passwords_that_libpq_reads_in_their_files(tmp_path):
    """A colon and a backslash are escaped there; a quote, a space and the line's end are what they are."""
    need_services()
    script = (ROOT / "docker/postgres-init.sh").read_text().replace("/run/secrets", str(tmp_path))
    for user, password in {"mlflow": r"a\:b\\c'd'' \\n" + "\n", "optuna": r'"%s" $(no) &'}.items():
        write_secret(tmp_path / f"{user}_pgpass", f"*:*:*:{user}:{password}")
    with started(Empty) as server:
        at = {"PATH": f"{server.programs}:/usr/bin:/bin", "PGHOST": LOOPBACK, "PGPORT": str(server.port)}
        admin = {"POSTGRES_USER": server.USER, **server.environment()}
        subprocess.run(["bash", "-c", script], env=at | admin, check=True)
        for database in Postgres.DATABASES:
            user = database.partition("_")[0]
            asked = ["psql", "--no-psqlrc", "--no-password", "--command=SELECT 1", f"--username={user}", database]
            subprocess.run(asked, env=at | {"PGPASSFILE": str(tmp_path / f"{user}_pgpass")}, check=True)


# ---- images, and hashes

PINNED = r"(python:3\.\d+\.\d+|postgres:\d+\.\d+)-\S+@sha256:[0-9a-f]{64}"


def test_base_images_are_named_by_version_and_digest():
    texts = [(ROOT / file).read_text() for file in ("docker-compose.yml", "Dockerfile")]
    named, again = (re.findall(r"(?<=_IMAGE[=:])-?((?:python|postgres):[^\s}]+)", text) for text in texts)
    assert {image.partition(":")[0] for image in named} == {"python", "postgres"}
    assert [image for image in named if image.startswith("python")] == again, "one Python, in both files"
    for image in named:
        assert re.fullmatch(PINNED, image), image


@pytest.mark.parametrize(
    ("torch", "indices", "expected"),
    [
        ("cpu", "cpu", ["cpu"]),
        ("cpu", "cuda", ["cpu", "cuda"]),
        ("cuda", "cuda", ["cuda"]),
        ("cpu", "", ["cpu", "cuda"]),
    ],
)
def test_an_image_gets_the_torch_that_an_index_has(torch, indices, expected, tmp_path):
    """The Dockerfile's step with a pip that has such builds alone."""
    step = re.search(r"^RUN (install\(\).*?)\n\n", IMAGE, re.DOTALL | re.MULTILINE)[1]
    pip = tmp_path / "pip"
    pip.write_text(f'#!/bin/sh\necho "$@" >> asked\ncase "$*" in *torch-{indices or "no"}.txt*) ;; *) exit 1;; esac\n')
    pip.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/bin:/usr/bin", "TORCH": torch, "TORCH_INDEX": "https://torch.example"}
    ended = subprocess.run(["sh", "-c", step], cwd=tmp_path, env=env, capture_output=True, text=True)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [re.search(r"torch-(\w+)\.txt", line)[1] for line in asked] == expected
    assert all("--require-hashes" in line and "--extra-index-url https://torch.example" in line for line in asked)
    assert ended.returncode == (not indices) and ("name an index" in ended.stdout) == (not indices)


def lock(file):
    """The requirements of requirements/FILE.txt with their hashes: {name: (version, hashes)}."""
    text = (ROOT / f"requirements/{file}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = {}
    for line in lines:
        requirement = Requirement(line.partition(" --hash")[0])
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)", line)
        assert hashes and len(hashes) == line.count("--hash"), line
        found[canonicalize_name(requirement.name)] = (str(requirement.specifier).removeprefix("=="), hashes)
    return found


def test_every_pin_has_its_hashes():
    pins = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    locked = {name: version for file in ("core", "test", "audit") for name, (version, _) in lock(file).items()}
    cpu, cuda = lock("torch-cpu"), lock("torch-cuda")
    assert locked | {"torch": cuda["torch"][0]} == pinned
    assert list(cpu) == ["torch"] and cpu["torch"][0] == pinned["torch"] + "+cpu"
    assert cuda.keys() & locked.keys() == {"nvidia-cuda-nvrtc"}, "tests compile for GPUs without torch's CUDA build"


def test_nothing_is_installed_without_a_hash():
    makefile, image = ((ROOT / file).read_text() for file in ("Makefile", "Dockerfile"))
    assert "HASHED := $(PIP) --require-hashes" in makefile
    installed = [line for line in makefile.splitlines() if "-r requirements/" in line]
    assert len(installed) == 5
    for line in installed:
        assert line.count("$(HASHED) -r ") == line.count("-r requirements/"), line
    for words in re.findall(r"pip install ((?:.|\\\n)*)", image):
        assert "--require-hashes" in words or "--no-index" in words, words


def test_what_setup_cfg_asks_for_is_in_the_file_that_installs_it():
    extras = SETUP["options.extras_require"]
    asked = {"core": [SETUP["options"]["install_requires"], extras["cluster"]]}
    asked |= {extra: [extras[extra]] for extra in ("test", "audit")}
    for file, texts in asked.items():
        there = lock("core") | lock(file) | lock("torch-cpu")
        for requirement in map(Requirement, filter(None, "\n".join(texts).splitlines())):
            version = there[canonicalize_name(requirement.name)][0]
            assert requirement.specifier.contains(version, prereleases=True), requirement


def test_an_extra_asks_for_what_the_package_asks_for():
    texts = [SETUP["options"]["install_requires"], *SETUP["options.extras_require"].values()]
    asked = {}
    for requirement in map(Requirement, filter(None, "\n".join(texts).splitlines())):
        asked.setdefault(canonicalize_name(requirement.name), set()).add(str(requirement.specifier))
    assert not {name: sorted(versions) for name, versions in asked.items() if len(versions) > 1}


def test_the_image_is_built_of_every_package_and_module():
    packages = SETUP["options.packages.find"]["include"].replace("*", "").split(",")
    names = [*map(str.strip, packages), f"{SETUP['options']['py_modules']}.py"]
    copied, let_in = ((ROOT / file).read_text() for file in ("Dockerfile", ".dockerignore"))
    sources = " ".join(re.findall(r"^COPY (?!--)(.*) \S+$", copied, re.MULTILINE)).split()
    assert set(names) <= set(sources) and {f"!{name}" for name in names} <= set(let_in.splitlines())
