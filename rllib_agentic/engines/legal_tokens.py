"""From admissible action strings to the tokens that may be sampled at each position."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rllib_agentic.errors import InputError
from rllib_agentic.trajectory.turn import Ids

NO_IDS: Ids = np.zeros(0, np.int32)


class TrieNode:
    """What may follow one prefix. ``forced`` is the only legal next id, or None where there is a choice."""

    __slots__ = ("_legal", "children")

    def __init__(self) -> None:
        self.children: dict[int, TrieNode] = {}
        self._legal: Ids | None = None

    @property
    def legal(self) -> Ids:
        """The legal next ids, ascending; empty where the turn is over."""
        if self._legal is None or len(self._legal) != len(self.children):
            self._legal = np.array(sorted(self.children), np.int32) if self.children else NO_IDS
        return self._legal

    @property
    def forced(self) -> int | None:
        """The only legal next id, or None."""
        return next(iter(self.children)) if len(self.children) == 1 else None


class TokenTrie:
    """The legal turns, as a trie over token ids.

    Every sequence holds its stop token, so an action that is a prefix of another one stays apart from it.
    Equal sequences count once.

    Args:
        sequences: the legal turns as ids, each ending with its stop token.

    Raises:
        InputError: no sequence at all (an agent without a legal action; for no constraint pass ``legal=None``), or
            an empty one.

    Example:
        >>> trie = TokenTrie([[5, 6, 2], [5, 2], [7, 2]])
        >>> trie.at([]), trie.at([5]), trie.at([5, 2])
        (array([5, 7], dtype=int32), array([2, 6], dtype=int32), array([], dtype=int32))
    """

    def __init__(self, sequences: Iterable[Sequence[int]]) -> None:
        self.root = TrieNode()
        for sequence in sequences:
            if len(sequence) == 0:
                raise InputError("TokenTrie: a legal turn has no ids; every turn ends with a stop token at least")
            node = self.root
            for token in sequence:
                child = node.children.get(token)
                if child is None:
                    child = node.children[int(token)] = TrieNode()
                node = child
        if not self.root.children:
            raise InputError(
                "TokenTrie: no admissible action, so no token could be sampled. Give at least one action, "
                "or legal=None for no constraint."
            )

    def sequences(self) -> list[list[int]]:
        """All legal turns as ids, each once.

        Example:
            >>> TokenTrie([[5, 6, 2], [5, 2], [5, 2]]).sequences()
            [[5, 6, 2], [5, 2]]
        """
        found: list[list[int]] = []
        open_nodes: list[tuple[list[int], TrieNode]] = [([], self.root)]
        while open_nodes:
            prefix, node = open_nodes.pop()
            if not node.children:
                found.append(prefix)
            open_nodes += [([*prefix, token], child) for token, child in reversed(node.children.items())]
        return found

    def at(self, prefix_ids: Sequence[int] | Ids) -> Ids:
        """The legal next ids after what was sampled so far, int32, ascending; empty where the turn is over.

        Raises:
            ValueError: the prefix itself is not legal.
        """
        node = self.root
        for position, token in enumerate(prefix_ids):
            child = node.children.get(int(token))
            if child is None:
                raise ValueError(
                    f"TokenTrie.at: id {int(token)} at position {position} is not legal; legal: {node.legal.tolist()}"
                )
            node = child
        return node.legal


class ActionTries:
    """Makes tries of action strings with one tokenizer; remembers encodings and tries, since both recur all the time.

    Action text never makes control tokens: text that spells one is split into plain tokens. Texts that share their
    ids are one action.

    Args:
        tokenizer: any Hugging Face tokenizer.
        stop_id: the id that closes a turn.
        max_tries: how many tries to remember; the least recently used go first.
    """

    def __init__(self, tokenizer: Any, stop_id: int, *, max_tries: int = 8192) -> None:
        self.tokenizer = tokenizer
        self._stop_id = int(stop_id)
        self._control_ids = frozenset(tokenizer.all_special_ids) | {self._stop_id}
        self._max_tries = max_tries
        self._encoded: dict[str, tuple[int, ...]] = {}
        self._tries: OrderedDict[tuple[str, ...], TokenTrie] = OrderedDict()

    def trie(self, actions: Sequence[str]) -> TokenTrie:
        """The trie of these actions, each closed with the stop token.

        Raises:
            InputError: no action, an action that is no string, or one whose ids hold a control token.
        """
        key = tuple(actions)
        trie = self._tries.get(key)
        if trie is None:
            trie = self._tries[key] = TokenTrie([self.encode(action) for action in key])
            if len(self._tries) > self._max_tries:
                self._tries.popitem(last=False)
        else:
            self._tries.move_to_end(key)
        return trie

    def encode(self, action: str) -> tuple[int, ...]:
        """The ids of a whole turn that says this: its text, then the stop token.

        Raises:
            InputError: the action is no string, or its ids hold a control token.
        """
        sequence = self._encoded.get(action)
        if sequence is None:
            if not isinstance(action, str):
                raise InputError(f"ActionTries: an action must be a string, got {action!r}")
            ids = self.tokenizer.encode(action, add_special_tokens=False)
            if not self._control_ids.isdisjoint(ids):
                ids = self.tokenizer.encode(action, add_special_tokens=False, split_special_tokens=True)
            if not self._control_ids.isdisjoint(ids):
                raise InputError(
                    f"ActionTries: the action {action!r} encodes to {ids}, which holds a control token "
                    f"{sorted(self._control_ids.intersection(ids))}; a turn would end inside it. Rename the action."
                )
            sequence = self._encoded[action] = (*ids, self._stop_id)
        return sequence
