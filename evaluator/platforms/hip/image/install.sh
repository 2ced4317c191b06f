#!/bin/bash
# Runs as root inside the image of platform cuda while the image of platform hip is made. /mnt holds what it holds there;
# none stays.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8
if [ -f /mnt/proxy.env ]; then . /mnt/proxy.env; fi
if [ -f /mnt/apt.conf ]; then export APT_CONFIG=/mnt/apt.conf; fi

echo "step: apt-get install clang 19"
apt-get -q update
apt-get -qy install --no-install-recommends clang-19
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/*.log /var/log/apt/*
# clang's interface for editors and its sanitizers: nothing that a kernel for a GPU needs.
rm -rf /usr/lib/x86_64-linux-gnu/libclang-19.so* /usr/lib/llvm-19/lib/libclang-19.so* /usr/lib/llvm-19/lib/clang/*/lib
# No program in here may raise its user's rights.
find / -xdev -type f -perm /6000 -exec chmod ug-s {} +

echo "step: try it"
cat > /tmp/kernel.hip <<'END'
__attribute__((global)) void twice(float* x) { x[__builtin_amdgcn_workitem_id_x()] *= 2; }
END
for architecture in gfx90a gfx942 gfx1100; do
    clang-19 -x hip "--offload-arch=$architecture" --cuda-device-only -nogpuinc -nogpulib -O3 -S /tmp/kernel.hip -o /tmp/kernel.s
    grep -q s_endpgm /tmp/kernel.s
done
clang-19 --version | head -1
rm -rf /tmp/* /root/.cache
