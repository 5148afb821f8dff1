"""Checks of `explorer.yaml`: engines, reloads, and who can reach them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from slipstream.doctor.files import Files
from slipstream.doctor.findings import Finding, Problem

ENGINE = "explorer.rollout_model"
_SLOW = 60
"""Seconds between two looks for a new version; Trinity's default."""

NEVER_RELOADS = Problem(
    "files.explorer_never_reloads",
    "error",
    why="An engine loads a new version only while more than `min_running_model_num` engines run. Here that is never "
    "so: the Explorer serves its first version for ever, and what is trained is never used.",
    fix="`engine_num: 2` or more; with one GPU `min_running_model_num: 0` (`--overlay overlays/one-gpu.yaml`).",
)
ADAPTERS = Problem(
    "files.adapters_never_answer",
    "warning",
    why="Trinity-RFT's Explorer loads a new adapter beside the model and answers with the model: its OpenAI server is "
    "not told of the adapter. So with it all answers are the first model's, whatever version they name, and what is "
    "trained is never used. The embedded engine merges adapters into its versions: with it nothing is wrong.",
    fix="With Trinity-RFT take `model.lora_configs` out of both files; where memory is short, "
    "`trainer.offload_policy: true`. With the embedded engine leave it as it is.",
)
FAILS_IN_RELOAD = Problem(
    "files.chats_fail_in_reload",
    "warning",
    why="With `min_running_model_num: 0` all engines may load a new version at once; until one is back, chats with "
    "the policy get a 500. The sidecar keeps its runs for later, and tries the chats of the facade again for "
    "`facade.retry_for`; a client beyond that sees the 500.",
    fix="Two engines and `min_running_model_num: 1`. With one GPU it cannot be helped: keep `facade.retry_for` well "
    "above the seconds that a reload takes.",
)
TOO_FEW_GPUS = Problem(
    "files.too_few_gpus",
    "error",
    why="Trinity refuses to start: each engine takes its own GPUs.",
    fix="Make engine_num * tensor_parallel_size (by data and pipeline parallelism) at most node_num * gpu_per_node. "
    "One engine over several nodes takes whole nodes, and no data parallelism.",
)
GPUS_UNKNOWN = Problem(
    "files.gpus_not_given",
    "warning",
    why="Where `node_num` or `gpu_per_node` is missing Trinity asks Ray, and where it finds one GPU in all it changes "
    "the mode to `colocate`: a service that neither serves nor trains as the file says.",
    fix="Give `cluster.node_num` and `cluster.gpu_per_node` in both files.",
)
OPENAI_API_OFF = Problem(
    "files.openai_api_off",
    "warning",
    why="The Explorer's chats go through the engines' OpenAI API. Trinity 0.6.0 turns it on by itself in serve mode, "
    "another version may not.",
    fix="`enable_openai_api: true`.",
)
HISTORY_OFF = Problem(
    "files.history_off",
    "warning",
    why="History is what makes an answer an experience. Trinity 0.6.0's proxy records in any case, another version "
    "may not, and without it feedback has no effect.",
    fix="`enable_history: true`.",
)
NO_TOOL_PARSER = Problem(
    "files.no_tool_call_parser",
    "error",
    why="vLLM refuses to start with `enable_auto_tool_choice` and no parser.",
    fix="`tool_call_parser: hermes` (Qwen2.5, Qwen3), or the one that vLLM names for your model.",
)
TOOLS_REFUSED = Problem(
    "files.tools_refused",
    "warning",
    why="vLLM answers 400 to a request that offers tools and leaves the choice to the model, as agents do: such a run "
    "is refused and dropped.",
    fix="`enable_auto_tool_choice: true` and a `tool_call_parser`.",
)
LISTENS_EVERYWHERE = Problem(
    "files.explorer_listens_everywhere",
    "warning",
    why="The Explorer has no authentication: whoever reaches it can chat, poison rewards and commit. It is safe only "
    "where the network itself lets nobody but the sidecar in (an internal container network, a NetworkPolicy).",
    fix="The address that only the sidecar can reach, by EXPLORER_LISTEN_ADDRESS; 127.0.0.1 on one machine.",
)
LISTENS_IN_PUBLIC = Problem(
    "files.explorer_listens_in_public",
    "error",
    why="The Explorer has no authentication: whoever reaches it can chat, poison rewards and commit.",
    fix="A loopback or private address, by EXPLORER_LISTEN_ADDRESS.",
)
SLOW_TO_FOLLOW = Problem(
    "files.slow_to_follow",
    "warning",
    why="An engine is looked at twice in this time, one engine is let go at a time: new versions are served minutes "
    "late, and the experiences of that time are of an old policy.",
    fix="`service_status_check_interval: 10`.",
)
SAME_ANSWERS = Problem(
    "files.temperature_zero",
    "error",
    why="At temperature 0 the policy gives the same answer each time: runs do not differ, so there is nothing to "
    "learn.",
    fix="`temperature: 1.0` in both files.",
)
TEMPERATURE = Problem(
    "files.temperature_not_one",
    "warning",
    why="Trinity's Trainer computes probabilities at temperature 1.0 whatever is written here: they differ from the "
    "Explorer's before the first step, and clipping throws tokens away.",
    fix="`temperature: 1.0` in both files.",
)
NO_LENGTH = Problem(
    "files.no_max_model_len",
    "error",
    why="Trinity refuses to start: it cannot tell how much memory an answer may take.",
    fix="`model.max_model_len`, in tokens, prompt and response together.",
)
NO_ROOM = Problem(
    "files.no_room_for_the_prompt",
    "error",
    why="Prompt and response together may have `max_model_len` tokens. Trinity refuses to start, or every prompt is "
    "too long.",
    fix="Make max_prompt_tokens + max_response_tokens at most max_model_len, and leave room for the prompt.",
)


def reloads(files: Files) -> Iterator[Finding]:
    engines, kept = (
        files.explorer.whole(f"{ENGINE}.engine_num"),
        files.explorer.whole("explorer.min_running_model_num"),
    )
    where = files.explorer.at("explorer.min_running_model_num")
    if engines <= kept:
        yield NEVER_RELOADS.at(where, f"{kept} with engine_num {engines}")
    elif kept == 0:
        settings = files.sidecar
        retries = f"runs.max_attempts {settings.runs.max_attempts}, facade.retry_for {settings.facade.retry_for:g} s"
        yield FAILS_IN_RELOAD.at(where, f"0 with engine_num {engines}; {retries}")


def adapters(files: Files) -> Iterator[Finding]:
    for document in (files.explorer, files.trainer):
        if (given := document.given("model.lora_configs")) is not None:
            count = len(given) if isinstance(given, list) else 1
            yield ADAPTERS.at(document.at("model.lora_configs"), f"{count} of them")


def gpus(files: Files) -> Iterator[Finding]:
    explorer = files.explorer
    sizes = [explorer.whole(f"{ENGINE}.{each}_parallel_size") for each in ("tensor", "data", "pipeline")]
    engines = explorer.whole(f"{ENGINE}.engine_num")
    one, node = sizes[0] * sizes[1] * sizes[2], explorer.whole("cluster.gpu_per_node")
    if explorer.gpus and engines * one > explorer.gpus:
        found = f"{engines} engines of {one} GPUs, and {explorer.gpus} GPUs"
        yield TOO_FEW_GPUS.at(explorer.at(f"{ENGINE}.engine_num", "cluster"), found)
    elif explorer.gpus and one > node and (one % node or sizes[1] > 1):
        found = f"an engine of {one} GPUs, data_parallel_size {sizes[1]}, over nodes of {node} GPUs"
        yield TOO_FEW_GPUS.at(explorer.at(f"{ENGINE}.tensor_parallel_size", "cluster.gpu_per_node"), found)
    for document in (explorer, files.trainer):
        if not document.gpus:
            missing = [key for key in ("node_num", "gpu_per_node") if not document.whole(f"cluster.{key}")]
            yield GPUS_UNKNOWN.at(document.at("cluster"), f"no {' and no '.join(missing)}")


def recording(files: Files) -> Iterator[Finding]:
    for problem, key in ((OPENAI_API_OFF, "enable_openai_api"), (HISTORY_OFF, "enable_history")):
        if not files.explorer.flag(f"{ENGINE}.{key}"):
            yield problem.at(files.explorer.at(f"{ENGINE}.{key}"), "false")


def tools(files: Files) -> Iterator[Finding]:
    chosen = files.explorer.flag(f"{ENGINE}.enable_auto_tool_choice")
    if not chosen:
        yield TOOLS_REFUSED.at(files.explorer.at(f"{ENGINE}.enable_auto_tool_choice"), "false")
    elif not files.explorer.text(f"{ENGINE}.tool_call_parser"):
        yield NO_TOOL_PARSER.at(files.explorer.at(f"{ENGINE}.tool_call_parser"), "nothing")


def listening(files: Files) -> Iterator[Finding]:
    text, where = files.explorer.text("explorer.listen_address"), files.explorer.at("explorer.listen_address")
    if not text:
        yield LISTENS_EVERYWHERE.at(where, "nothing, which stands for every address")
        return
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return  # a name: which address it stands for is the host's to say
    if address.is_unspecified:
        yield LISTENS_EVERYWHERE.at(where, text)
    elif not address.is_private:  # loopback counts as private
        yield LISTENS_IN_PUBLIC.at(where, text)


def following(files: Files) -> Iterator[Finding]:
    seconds = files.explorer.whole("explorer.service_status_check_interval")
    if seconds >= _SLOW:
        where = files.explorer.at("explorer.service_status_check_interval")
        yield SLOW_TO_FOLLOW.at(where, f"{seconds} s")


def temperature(files: Files) -> Iterator[Finding]:
    value = files.explorer.number("model.temperature")
    if value != 1:
        problem = TEMPERATURE if value else SAME_ANSWERS
        yield problem.at(files.explorer.at("model.temperature"), f"{value:g}")


def lengths(files: Files) -> Iterator[Finding]:
    names = ("max_model_len", "max_prompt_tokens", "max_response_tokens")
    whole, prompt, response = (files.explorer.whole(f"model.{name}") for name in names)
    if not whole and not (prompt and response):
        yield NO_LENGTH.at(files.explorer.at("model.max_model_len"), "nothing")
    elif whole and (response >= whole or prompt + response > whole):
        found = f"max_model_len {whole}, max_prompt_tokens {prompt or 'not given'}, max_response_tokens {response}"
        yield NO_ROOM.at(files.explorer.at("model.max_response_tokens"), found)
