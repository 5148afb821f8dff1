"""Code of the user's own, named in `sidecar.yaml` with `python:`: how it is loaded, and what it raises."""
