"""What platforms under qemu-user share on the host's side; no platform itself."""
