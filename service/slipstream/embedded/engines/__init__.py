"""Engines that sample the policy's answers: transformers in this process, or a vLLM server beside it."""
