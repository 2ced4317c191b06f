"""What the pages show: plain values, read from the store and ready to be laid out."""
