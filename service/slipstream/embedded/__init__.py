"""The embedded engine: an Explorer and a Trainer that need no GPU, for `slipstream[embedded]`.

They read the same `explorer.yaml` and `trainer.yaml`, speak the same HTTP and write the same checkpoint layout as
Trinity-RFT. Nothing outside this package imports it at module level: torch and transformers come with it.
"""

import os

# Explorer and Trainer share the cores. OpenMP's threads by default spin while they wait for one another, which takes
# the core from the thread they wait for: with 2 cores and both at work a decoding step of 16 rows took 0.7 to 3.3 s
# spinning and 0.25 s sleeping. OpenMP reads this once, when torch is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
