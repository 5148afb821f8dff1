"""`sidecar.yaml`: `sidecar` has every key with its type and default, `source` reads file and environment."""
