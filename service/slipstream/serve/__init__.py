"""`slipstream serve`: its processes, the sockets where they meet, and how they are started and kept running."""
