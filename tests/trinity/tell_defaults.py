"""Runs in Trinity's environment: its defaults of the keys on standard input, and its algorithms, as JSON.

Of each algorithm it says whether it needs a reference model.
"""

from __future__ import annotations

import json
import sys

from omegaconf import OmegaConf
from trinity.algorithm import ALGORITHM_TYPE
from trinity.common.config import Config, ExperienceBufferConfig

if __name__ == "__main__":
    schema = OmegaConf.structured(Config)
    schema.buffer.trainer_input.experience_buffer = OmegaConf.structured(ExperienceBufferConfig)
    values = {key: OmegaConf.select(schema, key) for key in json.load(sys.stdin)}
    references = {name: ALGORITHM_TYPE.get(name).use_reference for name in ALGORITHM_TYPE._default_mapping}
    print(json.dumps([{key: getattr(value, "value", value) for key, value in values.items()}, references]))
