"""The embedded engine: an Explorer and a Trainer that need no GPU, for `slipstream[embedded]`.

They read the same `explorer.yaml` and `trainer.yaml`, speak the same HTTP and write the same checkpoint layout as
Trinity-RFT. Nothing outside this package imports it at module level: torch and transformers come with it.
"""
