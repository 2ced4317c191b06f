#!/bin/bash
# Runs as root inside the base image while the image of riscv and arm64 is made. /mnt is a folder of the host, mounted read-only:
# wheels/ (Python packages and pip), apt.conf, sources/ and proxy.env (how this host reaches Debian), ca.crt. None stays.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
if [ -f /mnt/proxy.env ]; then . /mnt/proxy.env; fi
if [ -f /mnt/apt.conf ]; then export APT_CONFIG=/mnt/apt.conf; fi
# Documentation and translations of packages are of no use here.
printf 'path-exclude /usr/share/%s/*\n' doc man info locale > /etc/dpkg/dpkg.cfg.d/kernelwright

echo "step: apt-get update and upgrade"
apt-get -q update
apt-get -qy upgrade
echo "step: apt-get install python3, clang 19, qemu-user, the C library for riscv64 and arm64"
apt-get -qy install --no-install-recommends python3 clang-19 lld-19 qemu-user libc6-dev-riscv64-cross \
    libc6-dev-arm64-cross
# Emulators of other machines: 250 MB that nobody needs.
find /usr/bin -name 'qemu-*' ! -name qemu-riscv64 ! -name qemu-aarch64 -delete
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/*.log /var/log/apt/*

echo "step: install the Python packages"
pip=(/mnt/wheels/pip-*.whl)
python3 "${pip[0]}/pip" install --no-cache-dir --no-index --find-links /mnt/wheels --no-deps --break-system-packages \
    --root-user-action=ignore --disable-pip-version-check -q -r /mnt/requirements.txt
# The root will be read-only: whatever has no bytecode now would be compiled again at every start.
python3 -m compileall -q -j 0 /usr/lib/python3 /usr/lib/python3.11 /usr/local/lib/python3.11 || true

mkdir -p /harness
install -m 755 /mnt/start.sh /usr/local/bin/kernelwright-start
# No program in here may raise its user's rights.
find / -xdev -type f -perm /6000 -exec chmod ug-s {} +

echo "step: try it"
python3 -c 'import einops, numpy, torch; print("torch", torch.__version__, "numpy", numpy.__version__)'
clang-19 --version | head -1
qemu-riscv64 --version | head -1
qemu-aarch64 --version | head -1
