"""What Trinity 0.6.0's rollout engine needs to run on vLLM's CPU build (0.28, newer than the 0.23 that it asks for).

One engine with tensor parallel 1: the process group over which an engine's ranks share weights is not needed then.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import inspect
import logging
from types import ModuleType, SimpleNamespace
from typing import Any

GONE = "vllm.tool_parsers.qwen3coder_tool_parser"
"""A module that Trinity's plugin for vLLM imports, and that vLLM has no more."""


def worker(module: ModuleType) -> None:
    """Trinity names its own worker class, which is a GPU worker's subclass: make it a CPU worker as well."""
    from vllm.v1.worker.cpu_worker import CPUWorker

    module.TrinityGPUWorker = type(
        "TrinityGPUWorker", (module.TrinityGPUWorker, CPUWorker), {"__module__": module.__name__}
    )


def weight_transfer(module: ModuleType) -> None:
    """Weights are read from the checkpoint by the one rank itself, without NCCL."""
    base, trinitys = module.WeightTransferEngine, module.CheckpointWeightTransferEngine

    class CheckpointWeightTransferEngine(trinitys):  # type: ignore[misc, valid-type]
        def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
            base.__init__(self, config, vllm_config, device, model)  # the signature of vLLM 0.27 and later
            self.model_update_group = None

        def init_transfer_engine(self, init_info: Any) -> None:
            if init_info.world_size != 1:
                raise RuntimeError(f"on CPU: expected one rank an engine, found {init_info.world_size}")
            self.model_update_group = SimpleNamespace(rank=0)
            self._sync_method, self._namespace, self._synchronizer = init_info.sync_method, init_info.namespace, None

        def _produce_checkpoint_weights(self, update_info: Any, load_weights: Any) -> None:
            load_weights(list(module.load_state_dict_iterator(checkpoint_dir=update_info.checkpoint_path)))

        def start_weight_update(self) -> None:
            from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

            initialize_layerwise_reload(self.model)

        def finish_weight_update(self) -> None:
            from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

            finalize_layerwise_reload(self.model, self.model_config)

        def receive_weights(self, update_info: Any) -> None:
            self._produce_checkpoint_weights(update_info, self.model.load_weights)

    module.CheckpointWeightTransferEngine = CheckpointWeightTransferEngine


def async_engine(module: ModuleType) -> None:
    """Trinity passes an argument that newer engines take no more."""
    original = module.AsyncLLM.start_weight_update
    if "is_checkpoint_format" in inspect.signature(original).parameters:
        return

    async def start_weight_update(self: Any, **_: Any) -> Any:
        return await original(self)

    module.AsyncLLM.start_weight_update = start_weight_update


def api_server(module: ModuleType) -> None:
    """Trinity leaves out an argument that newer engines demand."""
    original = module.create_server_socket
    parameter = inspect.signature(original).parameters.get("reuse_port")
    if parameter is not None and parameter.default is inspect.Parameter.empty:
        module.create_server_socket = lambda address, reuse_port=False: original(address, reuse_port=reuse_port)


class Gone(importlib.abc.Loader):
    """The names that Trinity wants to patch in the module that is gone."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.Qwen3CoderToolParser = type("Qwen3CoderToolParser", (), {"_is_patched": True})
        module.FunctionCall = module.ToolCall = dict
        module.find_tool_properties = lambda *_: {}
        module.logger = logging.getLogger(module.__name__)
