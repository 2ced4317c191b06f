#!/bin/sh
# kernelwright-start SECONDS PACKAGE ARG...: what every container of the image runs.
# Gives each user of the referee its own TorchInductor cache holding links to what the image has ready (owned by that
# user, so that none can put files into another's), then runs the package. Kills it after SECONDS even if the host
# process that should have done so has died.
for user in 0 20001 20002; do
    name=$(id -un "$user")
    setpriv --reuid="$user" --regid="$user" --clear-groups \
        cp -rs --no-preserve=all /opt/kernelwright/inductor "/tmp/torchinductor_$name"
done
seconds=$1
shift
exec timeout --signal=KILL "$seconds" python3 -P -s -m "$@"
