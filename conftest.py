"""Modules that run inside vLLM's own processes are collected where vLLM is installed, and nowhere else."""

from importlib.util import find_spec

collect_ignore = (
    [] if find_spec("vllm") else [f"rllib_agentic/engines/{name}.py" for name in ("vllm_masks", "vllm_worker")]
)
