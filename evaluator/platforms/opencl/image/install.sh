#!/bin/bash
# Runs as root inside the image of platform cpu while the OpenCL image is made. /mnt holds what it holds there; none stays.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
if [ -f /mnt/proxy.env ]; then . /mnt/proxy.env; fi
if [ -f /mnt/apt.conf ]; then export APT_CONFIG=/mnt/apt.conf; fi

echo "step: apt-get install PoCL"
apt-get -q update
apt-get -qy install --no-install-recommends pocl-opencl-icd
# Sanitizers, libraries for 32 bits, clang's interface for editors: 130 MB that no kernel uses.
rm -rf /usr/lib/llvm-15/lib/clang/*/lib /usr/lib32 /usr/lib/x86_64-linux-gnu/libclang-15.so*
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/*.log /var/log/apt/*

echo "step: install pyopencl"
pip=(/mnt/wheels/pip-*.whl)
python3 "${pip[0]}/pip" install --no-cache-dir --no-index --find-links /mnt/wheels --no-deps --break-system-packages \
    --root-user-action=ignore --disable-pip-version-check -q -r /mnt/requirements.txt
python3 -m compileall -q -j 0 /usr/local/lib/python3.11/dist-packages/{pyopencl,pytools,platformdirs} || true
# No program in here may raise its user's rights.
find / -xdev -type f -perm /6000 -exec chmod ug-s {} +

echo "step: try it"
POCL_CACHE_DIR=$(mktemp -d) HOME=/tmp python3 - <<'END'
import numpy
import pyopencl as cl

context = cl.Context(cl.get_platforms()[0].get_devices())
queue = cl.CommandQueue(context)
numbers = numpy.arange(64, dtype=numpy.float32)
memory = cl.Buffer(context, cl.mem_flags.USE_HOST_PTR, hostbuf=numbers)
source = "__kernel void twice(__global float *x) { x[get_global_id(0)] *= 2; }"
cl.Kernel(cl.Program(context, source).build(), "twice")(queue, (64,), (8,), memory)
queue.finish()
assert (numbers == 2 * numpy.arange(64)).all(), numbers
print(context.devices[0].name, context.devices[0].version)
END
rm -rf /tmp/* /root/.cache
