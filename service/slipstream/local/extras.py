"""Commands that install the extras of the distribution."""

EMBEDDED = """\
  on a CPU:    pip install torch --index-url https://download.pytorch.org/whl/cpu && \
pip install 'slipstream-sidecar[embedded]'
  with a GPU:  pip install 'slipstream-sidecar[embedded]'
(on Linux the torch of PyPI comes with CUDA, some gigabytes)"""
"""The embedded engine and torch."""
