"""What stands behind the proxies: nginx with a ready answer for requests, and a stub of our own for streams.

Both listen on the same port, one after the other, so that no proxy has to be told. The answers carry token ids and
log probabilities, as vLLM's do when asked: Trinity's proxy records nothing, and fails, without them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bench.machine import Cores
from bench.processes import Process, Unavailable
from bench.request import MODEL

_ANSWER = 1024
_COMMON = """
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
worker_processes 1;
worker_rlimit_nofile 16384;
daemon off;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  keepalive_timeout 3600s;
  tcp_nodelay on;
  client_header_buffer_size 8k;
  client_body_buffer_size 64k;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
"""
_UPSTREAM = """
  server {{
    listen 127.0.0.1:{port} backlog=4096 reuseport;
    default_type application/json;
    location / {{ return 200 '{answer}'; }}
  }}
}}
"""
_PROXY = """
  upstream model {{
    server 127.0.0.1:{upstream};
    keepalive 2048;
    keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://model;
      proxy_http_version 1.1;
      proxy_set_header connection "";
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""


def answer() -> str:
    """The completion, about 1 KB; nginx puts a word of its own in its id."""
    logprobs: list[dict[str, object]] = [
        {"token": f" w{number}", "logprob": -0.25, "bytes": None, "top_logprobs": []} for number in range(7)
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "Your order is on its way."},
        "logprobs": {"content": logprobs},
        "finish_reason": "stop",
        "token_ids": list(range(1000, 1007)),
    }
    whole = {
        "id": "chatcmpl-$request_id",
        "object": "chat.completion",
        "created": 1700000000,
        "model": MODEL,
        "choices": [choice],
        "usage": {"prompt_tokens": 32, "completion_tokens": 7, "total_tokens": 39},
        "prompt_token_ids": list(range(2000, 2032)),
    }
    return json.dumps(whole, separators=(",", ":")).ljust(_ANSWER - 32 + len("$request_id"))


def nginx_proxy(folder: Path, port: int, upstream: int) -> list[str]:
    """The command that runs nginx as a proxy with one worker."""
    return _nginx(folder, _COMMON + _PROXY, port=port, upstream=upstream)


def start_nginx(folder: Path, port: int, cores: Cores) -> Process:
    """The upstream of requests."""
    command = _nginx(folder, _COMMON + _UPSTREAM, port=port, answer=answer())
    return _listening(Process(command, cores.others, folder / "output.log", {}), port)


def start_streams(folder: Path, port: int, cores: Cores) -> Process:
    """The upstream of streams."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(Path(__file__).with_name("stream_stub.py")), str(port)]
    command.append(answer().replace("$request_id", "0" * 32))
    return _listening(Process(command, cores.others, folder / "output.log", {}), port)


def _listening(process: Process, port: int) -> Process:
    try:
        process.listen(port)
    except Unavailable:
        process.end()
        raise
    return process


def _nginx(folder: Path, template: str, **values: object) -> list[str]:
    folder.mkdir(exist_ok=True)
    config = folder / "nginx.conf"
    config.write_text(template.format(folder=folder, **values))
    return ["nginx", "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(config)]
