"""One file a platform: what is particular to a language on a kind of device."""
