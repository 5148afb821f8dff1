"""A tuning as a process that a test can stop: `tuning_script.py STEPS [URL]`, in the folder of its dataset `d`."""

from __future__ import annotations

import signal
import sys

from tuned import one_call

from slipstream_client import AlgorithmConfig, DatasetConfig, TunerModelConfig, tune

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background
    steps, *url = sys.argv[1:]
    tune(
        workflow_func=one_call,
        train_dataset=DatasetConfig(path="d", total_steps=int(steps)),
        model=TunerModelConfig(model_path="model", max_model_len=128, max_tokens=8),
        algorithm=AlgorithmConfig(group_size=2, batch_size=2, learning_rate=1e-3),
        experiment_name="experiment",
        explorer_url=url[0] if url else None,
    )
