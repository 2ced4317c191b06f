#!/bin/sh
# kernelwright-start SECONDS PACKAGE ARG...: what every container of the image runs.
# Gives TorchInductor a cache of links to what the image has ready, then runs the package. Kills it after SECONDS even if
# the host process that should have done so has died.
cp -rs --no-preserve=all /opt/kernelwright/inductor /tmp/torchinductor_root
seconds=$1
shift
exec timeout --signal=KILL "$seconds" python3 -P -s -m "$@"
