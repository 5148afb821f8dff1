"""Lets the unmodified Trinity-RFT 0.6.0 serve and train on a CPU.

Trinity and verl 0.7 name CUDA in a few places. With this folder on PYTHONPATH Python imports this file at the start of
every process (driver, Ray actors, vLLM's engine), and right after one of the modules below is imported, its few names
are replaced. No file of a package is changed, and nothing else of them is.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

import serving_on_cpu
import training_on_cpu

_AFTER_IMPORT: dict[str, Callable[[ModuleType], None]] = {
    "trinity.common.models.vllm_worker": serving_on_cpu.worker,
    "trinity.common.models.vllm_extension": serving_on_cpu.weight_transfer,
    "vllm.v1.engine.async_llm": serving_on_cpu.async_engine,
    "vllm.entrypoints.openai.api_server": serving_on_cpu.api_server,
    "verl.utils.device": training_on_cpu.apply,
}


class _Loader(importlib.abc.Loader):
    """Another loader, and a patch after it."""

    def __init__(self, inner: importlib.abc.Loader, patch: Callable[[ModuleType], None]) -> None:
        self._inner, self._patch = inner, patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._patch(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _AFTER_IMPORT and name != serving_on_cpu.GONE:
            return None
        spec = self._others(name, path, target)
        if name == serving_on_cpu.GONE:
            return spec or importlib.util.spec_from_loader(name, serving_on_cpu.Gone())
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, _AFTER_IMPORT[name])
        return spec

    def _others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None


sys.meta_path.insert(0, _Finder())
