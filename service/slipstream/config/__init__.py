"""The parts that settings are made of: units, problems and how they are told, YAML with the place of each key.

`slipstream.settings` composes `sidecar.yaml` of them and of the sections that each folder defines.
"""
