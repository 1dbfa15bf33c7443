"""Machines on one switch, as far as Linux can show them on one: each has a network and folders of its own.

Needs to be root. All of a machine goes with its processes and its name.
"""

import contextlib
import secrets
import subprocess

import pytest

APART = """
token=$(cat "$RAY_AUTH_TOKEN_PATH")
unset RAY_AUTH_TOKEN_PATH
mount -o remount,bind,ro /
for folder in "$1" "$2" /dev/shm; do mount -t tmpfs none "$folder"; done
export HOME="$1/home" TMPDIR="$1/tmp"
mkdir -p "$HOME/.ray" "$TMPDIR"
(umask 077 && printf %s "$token" >"$HOME/.ray/auth_token")
cd "$1"
shift 2
exec "$@"
"""
"""Runs a command that can write nothing but its own folders. Words: a folder for it, one to hide, the command."""


class Machine:
    """A namespace with one address."""

    def __init__(self, network, number):
        self.name, self.address = f"{network}-{number}", f"10.57.0.{number}"
        self.inside = ["ip", "netns", "exec", self.name]
        """Words before a command that runs there with the folders of this machine."""

    def apart(self, folder, hidden):
        """Return words before a command that runs there and can write only what nobody else sees.

        folder: where it has its home folder, with a copy of Ray's token. hidden: it finds this one empty.
        """
        return [*self.inside, "unshare", "--mount", "sh", "-ec", APART, "sh", str(folder), str(hidden)]

    def cut_off(self):
        """Pull its cable: nothing goes or comes, and nobody is told."""
        subprocess.run([*self.inside, "ip", "link", "set", "cable", "down"], check=True)


@contextlib.contextmanager
def machines(count):
    """So many machines. Skips where no namespaces can be made."""
    network = f"adder-{secrets.token_hex(3)}"
    found = [Machine(network, number) for number in range(1, count + 1)]
    names = [network, *(machine.name for machine in found)]
    try:
        for name in names:
            if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
                pytest.skip("namespaces of networks can be made by root alone")
        _ip(network, "link add switch type bridge")
        _ip(network, "link set switch up")
        for number, machine in enumerate(found):
            _ip(network, f"link add port{number} type veth peer name cable netns {machine.name}")
            _ip(network, f"link set port{number} master switch up")
            _ip(machine.name, "link set lo up")
            _ip(machine.name, f"address add {machine.address}/24 dev cable")
            _ip(machine.name, "link set cable up")
            _ip(machine.name, "route add default dev cable")  # Ray asks by which address the world is reached
        yield found
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _ip(namespace, words):
    subprocess.run(["ip", "-n", namespace, *words.split()], check=True)
