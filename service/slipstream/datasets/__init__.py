"""Data sets for supervised and preference training, made from what the sidecar stores."""
