"""Where foreign code runs: Docker or plain processes, behind one Protocol."""
