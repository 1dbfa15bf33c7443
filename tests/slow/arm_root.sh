#!/usr/bin/env bash
# Makes a folder with 64-bit ARM's Debian, its Python, and torch, for test_wheel.py to try the wheel of ARM in:
#
#   tests/slow/arm_root.sh ROOT && ADDER_SEARCH_ARM_ROOT=ROOT python -m pytest -m full tests/slow/test_wheel.py
#
# Needs debootstrap, pip and a network, and takes 5 GB: the default index has torch for ARM with CUDA's libraries alone.
# Nothing of the folder is run here: it is unpacked, not configured.
# The test needs QEMU 10, if need be by QEMU=FILE: 7.2 dies of torch's import, those between were not tried.
set -euo pipefail
root="$(realpath -m "${1:?the folder to make}")"
cd "$(dirname "$0")/../.."
python="${PYTHON:-.venv/bin/python}"

[ -d "$root/usr/bin" ] || debootstrap --foreign --arch=arm64 --variant=minbase --include=python3,libgomp1 bookworm "$root"
for package in "$root"/var/cache/apt/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done

# oneDNN asks Linux which chip this is: a Neoverse N1.
registers="$root/sys/devices/system/cpu/cpu0/regs/identification"
mkdir -p "$registers"
echo 0x00000000413fd0c1 >"$registers/midr_el1"

tags=(--platform manylinux2014_aarch64)
for minor in $(seq 17 36); do tags+=(--platform "manylinux_2_${minor}_aarch64"); done
names=(numpy safetensors filelock typing_extensions sympy mpmath networkx jinja2 markupsafe fsspec setuptools)
mapfile -t libraries < <(grep -o '^nvidia-[^ ]*' requirements/torch-cuda.txt)
"$python" -m pip install --quiet --no-deps --only-binary=:all: --python-version 3.11 --implementation cp "${tags[@]}" \
    --target "$root/opt/site" --upgrade --constraint constraints.txt torch "${names[@]}" "${libraries[@]}"
