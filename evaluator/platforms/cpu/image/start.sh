#!/bin/sh
# kernelwright-start SECONDS PACKAGE ARG...: what every container of the image runs.
# Gives TorchInductor a cache of links to what the image has ready, then runs the package. Kills it after SECONDS even if
# the host process that should have done so has died.
# Every process allocates by jemalloc, which reuses memory in a fixed order: with the C library's allocator, which of two
# processes with the same code had its outputs in the cache was chance, and worth 12 %. Nothing is given back to the
# kernel, so that timed calls meet no fresh pages.
export LD_PRELOAD=/opt/kernelwright/allocator.so
export MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0
# Where g++ finds torch's headers precompiled.
export CPATH=/opt/kernelwright/include
cp -rs --no-preserve=all /opt/kernelwright/inductor /tmp/torchinductor_root
seconds=$1
shift
exec timeout --signal=KILL "$seconds" python3 -P -s -m "$@"
