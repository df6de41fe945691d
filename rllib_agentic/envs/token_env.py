"""Any environment as a gymnasium environment over tokens: the observation is the context, the action the next token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from pydantic import Field

from rllib_agentic.components import Settings, parse_settings
from rllib_agentic.context.append_only import AppendOnly
from rllib_agentic.context.strategy import Rewrite
from rllib_agentic.engines.legal_tokens import ActionTries, TrieNode
from rllib_agentic.engines.stop_strings import up_to_stop
from rllib_agentic.envs.env import Env, Observation
from rllib_agentic.envs.registry import env_names, make_env
from rllib_agentic.errors import InputError, did_you_mean
from rllib_agentic.rendering import Exchange, renderer_for
from rllib_agentic.rl_module.model_loading import load_tokenizer
from rllib_agentic.rl_module.model_settings import ModelSettings
from rllib_agentic.trajectory.message import Message
from rllib_agentic.trajectory.turn import FinishReason

_Step = tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]


class TokenEnvSettings(Settings):
    """What a :class:`TokenEnv` plays, and its limits.

    Attributes:
        env: an environment's registered name, or a callable that makes an :class:`~rllib_agentic.envs.env.Env`.
        env_config: arguments of the environment.
        split: whose tasks are drawn.
        model: whose tokenizer makes the tokens: the policy's.
        max_turns: interaction budget; None takes the environment's own.
        max_tokens_per_turn: an unfinished turn of this length ends the episode (truncated).
        max_context_tokens: length of the observation; a context that fills it ends the episode (truncated).
        skip_forced: within a turn, append tokens that are the only legal ones without asking the policy. They have
            probability 1, so with a discount of 1 the objective is the same, over far fewer steps.
        render_mode: ``ansi`` makes ``render()`` return the context as text.
    """

    env: str | Callable[[], Any]
    env_config: Mapping[str, Any] = {}
    split: str = "train"
    model: ModelSettings = ModelSettings(preset="tiny")
    max_turns: int | None = Field(default=None, ge=1)
    max_tokens_per_turn: int = Field(default=64, ge=1)
    max_context_tokens: int = Field(default=1024, ge=2)
    skip_forced: bool = False
    render_mode: Literal["ansi"] | None = None


class TokenEnv(gym.Env[dict[str, np.ndarray], np.int64]):
    """One session, an episode at a time, a token at a step.

    The observation is a dict of ``observations`` (int32 ``[T]``, the context, padded on the right with 0), ``length``
    (int32 ``[1]``, how many of them count) and ``action_mask`` (int8 ``[V]``, 1 on legal next tokens). A turn ends with
    a stop token or a stop string of the environment; then the environment answers and its reward is this step's. All
    other rewards are 0.

    A token outside the mask is no error: the turn goes on without a mask and the environment answers to what it gets.

    Args:
        config: fields of :class:`TokenEnvSettings` (RLlib's ``env_config``).
        kwargs: the same as keyword arguments (``gymnasium.make``); they win.

    Raises:
        InputError: wrong settings, no such environment or split, or the model's tokenizer is not there.

    Example:
        >>> env = gym.make("agentic/frozenlake-v0", max_context_tokens=512)
        >>> observation, info = env.reset(seed=0)
        >>> int(observation["length"][0]) < 512
        True
    """

    _prompt: tuple[Message, ...]
    _exchanges: list[Exchange]
    _context: list[int]
    _turn: list[int]
    _node: TrieNode | None

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  (gymnasium's own form)

    def __init__(self, config: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        self.settings = parse_settings(TokenEnvSettings, {**(config or {}), **kwargs}, "env_config")
        self.render_mode = self.settings.render_mode
        self.tokenizer = load_tokenizer(self.settings.model)
        self.renderer = renderer_for(self.tokenizer)
        stops = self.renderer.stop_ids
        eos = self.tokenizer.eos_token_id
        self._tries = ActionTries(self.tokenizer, eos if eos in stops else min(stops))
        self._env = _make(self.settings)
        schema = self._env.schema()
        if not schema.splits.get(self.settings.split):
            raise InputError(
                f"env_config.split: {schema.name} has no task in {self.settings.split!r}. "
                f"{did_you_mean(self.settings.split, schema.splits)}"
            )
        self._num_tasks = schema.splits[self.settings.split]
        self._tools = [dict(tool) for tool in schema.tools] if schema.tools_in_template else []
        self._stop_strings = schema.stop_strings
        self._stop_window = 8 + max((len(stop.encode()) for stop in schema.stop_strings), default=0)
        self._max_turns = self.settings.max_turns or schema.max_turns
        vocabulary, length = len(self.tokenizer), self.settings.max_context_tokens
        self.action_space = spaces.Discrete(vocabulary)
        self.observation_space = spaces.Dict(
            {
                "observations": spaces.Box(0, vocabulary - 1, (length,), np.int32),
                "length": spaces.Box(1, length, (1,), np.int32),
                "action_mask": spaces.MultiBinary(vocabulary),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begin an episode on a task drawn from the split.

        Args:
            seed: of the draw of tasks and of the environment's chance, from here on.
            options: ``{"index": I}`` plays that task; ``{"seed": S}`` fixes the environment's chance.

        Raises:
            InputError: no task of that index, or its prompt leaves no room for a token.
        """
        super().reset(seed=seed)
        options = options or {}
        drawn, chance = int(self.np_random.integers(self._num_tasks)), int(self.np_random.integers(2**31))
        index = int(options.get("index", drawn))
        if not 0 <= index < self._num_tasks:
            raise InputError(f"TokenEnv: task {index} of {self.settings.split!r}; there are 0 to {self._num_tasks - 1}")
        first = self._env.reset(self.settings.split, index, int(options.get("seed", chance)))
        self._prompt = first.messages
        self._exchanges = []
        self._strategy = AppendOnly()
        self._context = self.renderer.render(self._prompt, tools=self._tools).tolist()
        if len(self._context) >= self.settings.max_context_tokens:
            raise InputError(
                f"TokenEnv: the prompt of task {index} has {len(self._context)} tokens; raise max_context_tokens "
                f"({self.settings.max_context_tokens})"
            )
        self._listen(first)
        return self._observe(), {"task": index}

    def step(self, action: np.int64 | int) -> _Step:
        """Append one token (and, with ``skip_forced``, those that must follow it)."""
        self._append(int(action))
        while self.settings.skip_forced and not self._turn_ended() and self._node and self._node.forced is not None:
            self._append(self._node.forced)
        if self._turn[-1] in self.renderer.stop_ids:
            return self._act(FinishReason.STOP)
        if self._reached_stop_string():
            return self._act(FinishReason.STOP_STRING)
        if len(self._turn) >= self.settings.max_tokens_per_turn:
            return self._cut("max_tokens")
        if len(self._context) >= self.settings.max_context_tokens:
            return self._cut("max_context")
        return self._observe(), 0.0, False, False, {}

    def render(self) -> str | None:  # type: ignore[override]
        """The context as text, control tokens included."""
        return self.tokenizer.decode(self._context) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Free the environment."""
        self._env.close()

    def _append(self, token: int) -> None:
        self._context.append(token)
        self._turn.append(token)
        # Off the trie nothing is known to be legal or not.
        self._node = self._node.children.get(token) if self._node else None

    def _turn_ended(self) -> bool:
        return (
            self._turn[-1] in self.renderer.stop_ids
            or self._reached_stop_string()
            or len(self._turn) >= self.settings.max_tokens_per_turn
            or len(self._context) >= self.settings.max_context_tokens
        )

    def _reached_stop_string(self) -> bool:
        if not self._stop_strings:
            return False
        text = self.tokenizer.decode(self._turn[-self._stop_window :], skip_special_tokens=False)
        return any(stop in text for stop in self._stop_strings)

    def _act(self, finish_reason: FinishReason) -> _Step:
        ids = np.array(self._turn, np.int32)
        text = self.renderer.text(ids)
        if finish_reason is FinishReason.STOP_STRING:
            text = up_to_stop(text, self._stop_strings)
        result = self._env.step(text)
        self._exchanges.append(Exchange(Message("assistant", text), ids, finish_reason, result.observation.messages))
        info = {"text": text, "success": result.success, "turns": len(self._exchanges)}
        end = "terminated" if result.terminated else "env_truncated" if result.truncated else ""
        if not end:
            context = np.array(self._context, np.int32)
            step = self._strategy.next(self.renderer, self._prompt, self._exchanges, context, tools=self._tools)
            context = step.context_ids if isinstance(step, Rewrite) else np.concatenate([context, step.added_ids])
            self._context = context.tolist()
            if len(self._exchanges) >= self._max_turns:
                end = "max_turns"
            elif len(self._context) >= self.settings.max_context_tokens:
                end = "max_context"
        if end:
            self._turn, self._node = [], None
            return (
                self._observe(),
                float(result.reward),
                result.terminated,
                not result.terminated,
                {**info, "end_reason": end},
            )
        self._listen(result.observation)
        return self._observe(), float(result.reward), False, False, info

    def _cut(self, reason: str) -> _Step:
        # As in a rollout: the environment never sees half an action.
        info = {"success": False, "turns": len(self._exchanges), "end_reason": reason}
        return self._observe(), 0.0, False, True, info

    def _listen(self, observation: Observation) -> None:
        self._turn = []
        actions = observation.actions
        self._node = None if actions is None else self._tries.trie(actions).root

    def _observe(self) -> dict[str, np.ndarray]:
        ids = np.zeros(self.settings.max_context_tokens, np.int32)
        length = min(len(self._context), len(ids))
        ids[:length] = self._context[:length]
        mask = np.ones(self.action_space.n, np.int8)
        if self._node is not None:
            mask[:] = 0
            mask[self._node.legal] = 1
        return {"observations": ids, "length": np.array([length], np.int32), "action_mask": mask}


def _make(settings: TokenEnvSettings) -> Env:
    if callable(settings.env):
        return settings.env(**settings.env_config)
    return make_env(settings.env, **settings.env_config)


def _register() -> None:
    for name in env_names():
        if (id_ := f"agentic/{name}-v0") not in gym.registry:
            gym.register(id_, entry_point=f"{__name__}:TokenEnv", kwargs={"env": name})


_register()
