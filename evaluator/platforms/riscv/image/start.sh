#!/bin/sh
# kernelwright-start SECONDS PACKAGE ARG...: what every container of the image runs. Kills the package after SECONDS even
# if the host process that should have done so has died.
seconds=$1
shift
exec timeout --signal=KILL "$seconds" python3 -P -s -m "$@"
