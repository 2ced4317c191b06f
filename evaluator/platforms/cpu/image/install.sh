#!/bin/bash
# Runs as root inside the base image while the CPU image is made. /mnt is a folder of the host, mounted read-only:
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
echo "step: apt-get install python3, g++, ninja, jemalloc"
# openssl: TorchInductor calls it to hash headers, and fails without.
apt-get -qy install --no-install-recommends python3 python3-dev g++ ninja-build openssl libjemalloc2
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/*.log /var/log/apt/*

echo "step: install the Python packages"
pip=(/mnt/wheels/pip-*.whl)
python3 "${pip[0]}/pip" install --no-cache-dir --no-index --find-links /mnt/wheels --no-deps --break-system-packages \
    --root-user-action=ignore --disable-pip-version-check -q -r /mnt/requirements.txt
echo "step: install what other baselines run on"
# Only the processes of baselines may read it (protocol/baselines.py), so that no candidate calls one of these.
python3 "${pip[0]}/pip" install --no-cache-dir --no-index --find-links /mnt/wheels --no-deps --no-warn-conflicts \
    --root-user-action=ignore --disable-pip-version-check -q --target /opt/kernelwright/baselines -r /mnt/baselines.txt
# Their tests, and what they need for other devices. And tbbbind, which TBB can do without: with it, and the allocator
# below preloaded, OpenVINO's process ends in free().
rm -rf /opt/kernelwright/baselines/onnx/backend/test /opt/kernelwright/baselines/openvino/include
(cd /opt/kernelwright/baselines/openvino/libs && rm -f ./*_gpu_plugin* ./*_npu_plugin* cache.json libtbbbind* libhwloc*)
python3 -m compileall -q -j 0 /opt/kernelwright/baselines || true
chgrp -R 20000 /opt/kernelwright/baselines
chmod -R u=rwX,g=rX,o= /opt/kernelwright/baselines
# The root will be read-only: whatever has no bytecode now would be compiled again at every start.
python3 -m compileall -q -j 0 /usr/lib/python3 /usr/lib/python3.11 /usr/local/lib/python3.11 || true

mkdir -p /harness
ln -s "$(ldconfig -p | sed -n 's/.*libjemalloc.so.2.* => //p' | head -1)" /opt/kernelwright/allocator.so
install -m 755 /mnt/start.sh /usr/local/bin/kernelwright-start
# No program in here may raise its user's rights.
find / -xdev -type f -perm /6000 -exec chmod ug-s {} +

echo "step: compile torch's headers once for torch.compile"
warm=$(mktemp -d)
TMPDIR=$warm python3 /mnt/inductor_cache.py /opt/kernelwright/inductor
rm -rf "$warm" /tmp/* /root/.cache

echo "step: compile torch's headers once for load_inline"
python3 /mnt/headers.py /opt/kernelwright/include

echo "step: compile the loop of timed calls"
python3 /mnt/native/prepare.py

echo "step: try it"
python3 -c 'import einops, numpy, torch; print("torch", torch.__version__, "numpy", numpy.__version__)'
g++ --version | head -1
