"""Platform `arm64`: C with SVE, vectors of any length, counted under an emulator."""
