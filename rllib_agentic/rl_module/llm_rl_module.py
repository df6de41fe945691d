"""A causal language model as an RLlib RLModule: for our own learner and runner, and for stock RLlib algorithms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule

from rllib_agentic.components import parse_settings
from rllib_agentic.errors import InputError
from rllib_agentic.rl_module.lora import add_lora, is_adapter, merged_weights
from rllib_agentic.rl_module.model_loading import load_model, load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.rl_module.value_head import ValueHead
from rllib_agentic.rl_module.weights import named_weights, read_weights, write_weights

# What RLlib's own configs add to every module's model_config, unasked.
_ADDED_BY_RLLIB = frozenset({"vf_share_layers"})
_CRITIC = "value_head"
_CRITIC_MODEL = "critic_model"
# Tokens of one forward pass, padding included, where a batch of contexts is scored: bounds the
# activations in memory, and rows of like length share a pass (twice as fast on CPU as one pass for all).
_TOKENS_PER_PASS = 1 << 13


class LLMTorchRLModule(TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):
    """A policy whose actions are tokens.

    Made like every RLModule, with the fields of :class:`ModelSettings` as ``model_config``::

        RLModuleSpec(module_class=LLMTorchRLModule, model_config={"preset": "tiny", "seed": 0})

    and, where the critic is to be a model of its own, those of that one as ``critic``.

    Attributes:
        settings: which model this is.
        model: the Hugging Face causal language model.
        tokenizer: its tokenizer.
        value_head: the critic, or its last layer; absent on inference-only modules and where ``settings.value_head`` is
            false.
        critic_model: the decoder of a critic that is a model of its own, else None.

    In stock RLlib the observation is what :class:`~rllib_agentic.envs.token_env.TokenEnv` gives: a dict of
    ``observations`` (int ``[B, T]``, the context, padded on the right with anything), ``length`` (int ``[B, 1]``, how
    many of them count) and ``action_mask`` (``[B, V]``, which tokens may come next). The action is the next token.
    Train in float32 there: RLlib's own learner cannot save an optimizer's state in bf16 (ours can).
    """

    settings: ModelSettings
    value_head: ValueHead
    critic_model: torch.nn.Module | None

    def setup(self) -> None:
        """Load model, tokenizer and critic.

        Raises:
            InputError: the settings are wrong or the model is not there.
        """
        try:
            self._load()
        except AttributeError as error:
            # RLModuleSpec.build would take it for a module of an older kind and hide what happened.
            raise RuntimeError(f"{type(self).__name__}: setup failed: {error}") from error

    def _load(self) -> None:
        given = {key: value for key, value in (self.model_config or {}).items() if key not in _ADDED_BY_RLLIB}
        critic = given.pop("critic", None)
        self.settings = parse_settings(ModelSettings, given, "model")
        self.tokenizer = load_tokenizer(self.settings)
        self.model = load_model(self.settings)
        self._check_head()
        lora = self.settings.lora
        self._adapted = lora is not None and not (self.inference_only and lora.sync == "merged")
        if lora is not None and self._adapted:
            add_lora(self.model, lora)
        self.critic_model = None
        if self.settings.value_head:
            width = self.model.get_output_embeddings().weight.shape[1]
            if critic is not None and not self.inference_only:
                self.critic_model, width = self._load_critic(parse_settings(ModelSettings, critic, "critic"))
            self.value_head = ValueHead(width)

    def _load_critic(self, settings: ModelSettings) -> tuple[torch.nn.Module, int]:
        """The decoder of the critic's own model without its output layer, and its width."""
        if load_tokenizer(settings).get_vocab() != self.tokenizer.get_vocab():
            raise InputError(
                f"critic: {settings.name!r} has other tokens than the policy {self.settings.name!r}; it reads the same "
                "token ids, so it must have the same vocabulary"
            )
        model = load_model(settings)
        return model.base_model, model.get_output_embeddings().weight.shape[1]

    def hidden(
        self,
        ids_BT: torch.Tensor,
        *,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Last hidden states ``[B, T, D]``, as the output layer takes them. No cache is kept.

        Without ``attention_mask`` rows are causal and unpadded, or padded on the right, where padding changes nothing
        that comes before it.
        """
        out = self.model.base_model(
            input_ids=ids_BT, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
        )
        return out.last_hidden_state

    def critic_hidden(self, ids_BT: torch.Tensor) -> torch.Tensor:
        """Last hidden states as :attr:`value_head` takes them: of the critic's own model, or else of the policy."""
        if self.critic_model is None:
            return self.hidden(ids_BT)
        return self.critic_model(input_ids=ids_BT, use_cache=False).last_hidden_state

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of hidden states, ``[..., D]`` to ``[..., V]``: exactly the model's own, in its dtype."""
        logits = self.model.get_output_embeddings()(hidden)
        config = self.model.config
        if (scaling := getattr(config, "logits_scaling", None)) is not None:  # Granite
            logits = logits / scaling
        if (scale := getattr(config, "logit_scale", None)) is not None:  # Cohere
            logits = logits * scale
        if (cap := getattr(config, "final_logit_softcapping", None)) is not None:  # Gemma
            logits = torch.tanh(logits / cap) * cap
        return logits

    def compute_values(self, batch: Mapping[str, Any], embeddings: torch.Tensor | None = None) -> torch.Tensor:
        """The critic's values, float32 ``[B]``.

        Args:
            batch: with the observations.
            embeddings: hidden states ``[B, D]`` of a training forward pass; a critic that is a model of its own makes
                its own. Without them the values are targets (GAE, bootstrap): the contexts are scored without gradient.

        Raises:
            InputError: this module has no critic.
        """
        if not hasattr(self, _CRITIC):
            raise InputError("model.value_head: this module has no critic, but the algorithm asks for values")
        if embeddings is None:
            with torch.no_grad():
                embeddings = self._last_hidden(batch[Columns.OBS], self.critic_hidden)
        elif self.critic_model is not None:
            embeddings = self._last_hidden(batch[Columns.OBS], self.critic_hidden)
        return self.value_head(embeddings)

    def get_inference_action_dist_cls(self) -> type[TorchCategorical]:
        """Tokens are drawn from a categorical distribution, in every phase."""
        return TorchCategorical

    def get_non_inference_attributes(self) -> list[str]:
        """The critic: runners neither hold nor receive it."""
        return [_CRITIC, _CRITIC_MODEL]

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        inference_only: bool = False,
        **kwargs: Any,
    ) -> dict[str, np.ndarray]:
        """A snapshot of the weights; see :func:`~rllib_agentic.rl_module.weights.read_weights`.

        Of a model with adapters only what is trained, adapters and critic: the base comes from ``settings``, here and
        wherever this is loaded. With ``lora.sync: merged``, runners get whole weights.

        Args:
            components: unused; the weights are one component.
            not_components: unused.
            inference_only: leave the critic out.
            kwargs: unused.
        """
        return read_weights(self.policy_weights() if inference_only else self._own_weights())

    def policy_weights(self) -> dict[str, torch.Tensor]:
        """What engines sample with, by name, sharing the module's memory (but for layers with a merged adapter)."""
        merged = self._adapted and self.settings.lora is not None and self.settings.lora.sync == "merged"
        weights = merged_weights(self) if merged else self._own_weights()
        return {n: w for n, w in weights.items() if not _is_critic(n)}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Load a snapshot in place. An inference-only module passes over the critic.

        Raises:
            ValueError: any other name is missing or unknown, or a shape differs; then nothing is loaded.
        """
        ignored = [name for name in state if self.inference_only and _is_critic(name)]
        write_weights(self._own_weights(), state, ignore=ignored)

    def _own_weights(self) -> dict[str, torch.Tensor]:
        """What makes this module differ from the one that its settings give."""
        weights = named_weights(self)
        return {n: w for n, w in weights.items() if not self._adapted or is_adapter(n) or _is_critic(n)}

    def _forward(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, torch.Tensor]:
        return {Columns.ACTION_DIST_INPUTS: self._next_token_logits(batch, self._last_hidden(batch[Columns.OBS]))}

    def _forward_train(self, batch: Mapping[str, Any], **kwargs: Any) -> dict[str, torch.Tensor]:
        hidden_BD = self._last_hidden(batch[Columns.OBS])
        return {
            Columns.ACTION_DIST_INPUTS: self._next_token_logits(batch, hidden_BD),
            Columns.EMBEDDINGS: hidden_BD,
        }

    def _next_token_logits(self, batch: Mapping[str, Any], hidden_BD: torch.Tensor) -> torch.Tensor:
        legal_BV = batch[Columns.OBS]["action_mask"].bool()
        # A padded vocabulary has more logits than the tokenizer has tokens.
        logits_BV = self.logits(hidden_BD).float()[:, : legal_BV.shape[1]]
        return torch.where(legal_BV, logits_BV, torch.finfo(torch.float32).min)

    def _last_hidden(
        self, observation: Mapping[str, torch.Tensor], score: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> torch.Tensor:
        ids_BT, lengths_B = observation["observations"].long(), observation["length"].long().flatten()
        order_B = torch.argsort(lengths_B)
        passes = []
        for rows in order_B.split(max(1, _TOKENS_PER_PASS // ids_BT.shape[1])):
            lengths = lengths_B[rows]
            hidden = (score or self.hidden)(ids_BT[rows, : int(lengths.max())])
            passes.append(hidden[torch.arange(len(rows), device=hidden.device), lengths - 1])
        return torch.cat(passes)[torch.argsort(order_B)]

    @torch.no_grad()
    def _check_head(self) -> None:
        ids = torch.arange(4, device=self.model.device)[None]
        attention = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")  # flash kernels do not run on the CPU, where the model still is
        known = torch.allclose(self.logits(self.hidden(ids)), self.model(ids, use_cache=False).logits, atol=1e-3)
        self.model.set_attn_implementation(attention)
        if not known:
            raise InputError(
                f"model: {self.settings.name!r} changes its logits after the output layer in a way that is not known "
                f"here, so losses would be computed on wrong logits; use another model"
            )


def _is_critic(name: str) -> bool:
    return name.startswith((f"{_CRITIC}.", f"{_CRITIC_MODEL}."))
