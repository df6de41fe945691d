"""Engine ``vllm`` in YAML: where the replicas run, what each has, and vLLM's own arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from rllib_agentic.components import Settings
from rllib_agentic.engines.engine import Engine
from rllib_agentic.engines.vllm_adapter import adapter_args
from rllib_agentic.errors import InputError

_OF_OURS = {
    "tensor_parallel_size": "engine.tensor_parallel_size",
    "dtype": "engine.dtype",
    "max_model_len": "engine.max_model_len",
    "max_num_seqs": "engine.max_num_seqs",
    "kv_cache_memory_bytes": "engine.kv_cache_gb",
    "enable_sleep_mode": "engine.sleep",
    "enable_lora": "model.lora",
    "max_lora_rank": "model.lora.rank",
}


class VLLMEngineSettings(Settings):
    """VLLM in replicas on Ray Serve; runners send turns there and hold no weights.

    Attributes:
        num_replicas: how many engines the run starts; each holds the whole model.
        address: an engine that runs already, instead: the name of its Serve application in this cluster, or the URL of
            its gateway. The run brings its own weights there.
        tensor_parallel_size: GPUs (or, on CPU, processes) that share one replica's model. Each is a bundle of the
            replica's placement group.
        gpus_per_replica: GPUs of one bundle; None is 1 where the cluster has GPUs, else 0.
        cpus_per_replica: CPUs of one bundle.
        dtype: of weights and computation; None is the model's.
        max_model_len: longest context with its turn, in tokens; None is ``rollout.max_context_tokens``.
        max_num_seqs: most turns that one replica samples at a time.
        kv_cache_gb: memory of the cache of keys and values; None leaves it to vLLM, which takes a share of the device.
        sleep: what replicas give back while the learner works, where both share GPUs: ``no``, ``cache`` (vLLM's level
            1: weights move to the host) or ``all`` (level 2: weights come anew with every update).
        weight_transport: how new weights reach the replicas: ``object_store`` (through Ray's, by way of the driver),
            ``collective`` (broadcast from the learner's memory to vLLM's workers: NCCL between GPUs, gloo between CPUs)
            or ``auto``: ``collective`` where learner and replicas hold different GPUs.
        weight_timeout_s: longest silence of a member of such a broadcast before it is begun anew without it.
        http_port: also serve HTTP there, for turns and in OpenAI's form; None for handles only.
        call_timeout_s: longest time for replicas to load weights, to sleep or to wake.
        engine_args: any other argument of vLLM's ``AsyncEngineArgs``.
    """

    in_runner: ClassVar[bool] = False
    """Whether the engine samples in the runner's process, over the runner's own weights."""

    num_replicas: int = Field(default=1, ge=1)
    address: str | None = Field(default=None, min_length=1)
    tensor_parallel_size: int = Field(default=1, ge=1)
    gpus_per_replica: float | None = Field(default=None, ge=0)
    cpus_per_replica: float = Field(default=1.0, ge=0)
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    max_model_len: int | None = Field(default=None, ge=2)
    max_num_seqs: int = Field(default=128, ge=1)
    kv_cache_gb: float | None = Field(default=None, gt=0)
    sleep: Literal["no", "cache", "all"] = "no"
    weight_transport: Literal["auto", "object_store", "collective"] = "auto"
    weight_timeout_s: float = Field(default=60.0, gt=0)
    http_port: int | None = Field(default=None, ge=1, le=65535)
    call_timeout_s: float = Field(default=1800.0, gt=0)
    engine_args: Mapping[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> VLLMEngineSettings:
        for key, ours in _OF_OURS.items():
            if key in self.engine_args:
                raise ValueError(f"engine_args.{key}: write {ours} instead")
        if self.address is not None:
            started = {"num_replicas", "tensor_parallel_size", "gpus_per_replica", "engine_args", "http_port"}
            if given := sorted(started & self.model_fields_set):
                raise ValueError(f"address names an engine that runs already: {', '.join(given)} would have no effect")
            if self.weight_transport == "collective" and self.address.startswith(("http://", "https://")):
                raise ValueError(
                    "weight_transport: weights are uploaded to a URL; collective needs the name of an application in "
                    "this cluster as address"
                )
        return self

    def build(self, model: Any, tokenizer: Any) -> Engine:
        """Never: this engine lives in no runner.

        Raises:
            InputError: always.
        """
        raise InputError("engine vllm: runs in replicas of its own; this place samples in its own process only")

    def vllm_args(
        self, *, model_dtype: str, max_context_tokens: int, seed: int, adapter_rank: int | None = None
    ) -> dict[str, Any]:
        """Arguments of vLLM's ``AsyncEngineArgs``, apart from the model.

        Args:
            model_dtype: of section ``model``.
            max_context_tokens: of section ``rollout``.
            seed: the run's.
            adapter_rank: of the adapters that the learner will send in place of whole weights; the weights below them
                are then the model's own.

        Raises:
            InputError: vLLM takes no adapters of that rank.
        """
        args: dict[str, Any] = {
            "dtype": self.dtype or model_dtype,
            "max_model_len": self.max_model_len or max_context_tokens,
            "max_num_seqs": self.max_num_seqs,
            "tensor_parallel_size": self.tensor_parallel_size,
            "seed": seed % 2**31,
            # whole weights come from the learner before the first turn
            "load_format": "dummy" if adapter_rank is None else "auto",
        }
        if self.tensor_parallel_size > 1:
            args["distributed_executor_backend"] = "ray"  # in the bundles of the replica's placement group
        if self.kv_cache_gb is not None:
            args["kv_cache_memory_bytes"] = int(self.kv_cache_gb * 1e9)
        if adapter_rank is not None:
            args |= adapter_args(adapter_rank)
        if self.sleep != "no":
            args["enable_sleep_mode"] = True
        return args | dict(self.engine_args)
