"""`slipstream doctor`: what is wrong with a deployment, why it matters, and what to do. It never imports torch.

files ──▶ checks/agreement, storage, explorer, groups, trainer,        what the three files say
          sidecar, capture, endpoints
machine ▶ checks/machine                                               what this machine has
services▶ checks/services                                              what the running services answer
live.py                                                                what the sidecar sees of itself, for /status
"""
