"""Trinity-RFT's own files and commands, for the machines that run it. Nothing here imports torch, Ray or Trinity."""
