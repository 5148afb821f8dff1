"""The faults: importing this has them all."""

from chaos.faults import processes, links, store, clock, clients, poison  # noqa: F401, I001 - in the order of the table
from chaos.faults.fault import FAULTS, Fault

__all__ = ["FAULTS", "Fault"]
