#!/bin/bash
# Runs as root inside the image of platform cpu while the image of platform cuda is made. /mnt holds what it holds there,
# and the folders include/ and library/ of the emulation; none stays.
set -euo pipefail
export LANG=C.UTF-8

echo "step: compile the emulation"
PYTHONDONTWRITEBYTECODE=1 python3 /mnt/library/prepare.py /opt/kernelwright/cuda

echo "step: try it"
cat > /tmp/kernel.cpp <<'END'
#include "replay.h"
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
int main() {
  float x[4] = {0, 1, 2, 3};
  cuh::launch<twice>(cuh::Config(1, 4))(x);
  std::printf("%g %g\n", x[1], x[3]);
}
END
echo '#include <torch_on_host.h>' > /tmp/extension.cpp
options() {
    PYTHONDONTWRITEBYTECODE=1 python3 -c "import sys; sys.path.insert(0, '/mnt'); from library import prepare; print(*$1)"
}
# With -H g++ names the headers that it opens, and marks with "!" a precompiled one that serves.
served() { grep -q "^! $1" /tmp/headers || { echo "$1 does not serve"; head -3 /tmp/headers; exit 1; }; }
for kind in plain thread address; do
    folder=/opt/kernelwright/cuda/$kind
    g++ $(options "prepare.PROGRAMS['$kind']") -H "-I$folder" /tmp/kernel.cpp "$folder"/*.o -o /tmp/kernel 2>/tmp/headers
    served "$folder/replay.h.gch"
    [ "$(/tmp/kernel)" = "2 6" ]
done
folder=/opt/kernelwright/cuda/extension
more=$(options "(*prepare.EXTENSION, *prepare.torch_folders())")
g++ $more -H "-I$folder" -c /tmp/extension.cpp -o /tmp/extension.o 2>/tmp/headers
served "$folder/torch_on_host.h.gch"
python3 -c "import ctypes, torch; ctypes.CDLL('$folder/libcuh.so', mode=2).cuh_record"
rm -rf /tmp/* /root/.cache
