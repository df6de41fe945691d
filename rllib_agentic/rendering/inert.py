"""Text to ids, with a tokenizer whose control tokens no text can reach."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

from tokenizers import AddedToken, Tokenizer

from rllib_agentic.errors import InputError

# A token of the private inner tokenizer, put before a text so that the text is tokenized as in the middle of a
# context (some tokenizers treat the very first characters in another way). Two characters: it can be cut.
_GUARD = "\U0010fffd\U0010fffc"
_CACHED_CHARACTERS = 256


class InertEncoder:
    """Encodes text so that control tokens written in it stay readable but never become control ids.

    A tokenizer's *added* tokens are matched inside any text, also where ``split_special_tokens`` is set (that
    switch covers only the special ones, and is a state that all users of the tokenizer share). This class encodes
    with a private tokenizer that has the same model and no added tokens, and sorts the added tokens in three:

    * **controls**: special tokens, and those that the caller names (turn markers). Never made from content.
    * **marks**: other added tokens with punctuation, such as ``<think>`` or ``<tool_call>``. Made only from text of
      trusted roles, which write them on purpose.
    * **words**: added tokens such as runs of spaces or plain words. Vocabulary like any other.

    Args:
        tokenizer: a Hugging Face tokenizer with a ``tokenizers`` backend.
        controls: further added tokens to treat as controls.

    Raises:
        InputError: the tokenizer has no ``tokenizers`` backend.
    """

    def __init__(self, tokenizer: Any, controls: Iterable[str] = ()) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise InputError(
                f"{type(tokenizer).__name__}: a tokenizer with a `tokenizers` backend (tokenizer.json) is needed, "
                "so that control tokens in content can be made inert"
            )
        self._inner = Tokenizer(backend.model)
        if backend.normalizer is not None:
            self._inner.normalizer = backend.normalizer
        if backend.pre_tokenizer is not None:
            self._inner.pre_tokenizer = backend.pre_tokenizer
        self._inner.add_special_tokens([_GUARD])
        added: dict[int, AddedToken] = backend.get_added_tokens_decoder()
        self.ids: dict[str, int] = {token.content: number for number, token in added.items()}
        self.controls = frozenset(t.content for t in added.values() if t.special) | frozenset(controls)
        words = {t.content for t in added.values() if not re.search(r"[^\w\s]", t.content)} - self.controls
        self.marks = frozenset(self.ids) - self.controls - words
        self.matcher = _matcher(added.values())
        self._live = {
            True: _matcher(t for t in added.values() if t.content not in self.controls),
            False: _matcher(t for t in added.values() if t.content in words),
        }
        unknown = getattr(tokenizer, "unk_token_id", None)
        guard_id = self._inner.token_to_id(_GUARD)
        self._refused = frozenset({guard_id, *(self.ids[c] for c in self.controls | self.marks if c in self.ids)}) - {
            unknown
        }
        self._encode_short = lru_cache(maxsize=4096)(lambda text: tuple(self._encode(text)))

    def encode(self, text: str, *, trusted: bool = False) -> list[int]:
        """Ids of one content: controls inert, marks live only where ``trusted``, words live."""
        matcher = self._live[trusted]
        if matcher is None:
            return self.encode_run(text)
        ids: list[int] = []
        position = 0
        for match in matcher.finditer(text):
            ids += self.encode_run(text[position : match.start()])
            ids.append(self.id_of(match.group()))
            position = match.end()
        return ids + self.encode_run(text[position:])

    def encode_run(self, text: str, *, at_start: bool = False) -> list[int]:
        """Ids of a run of text in which nothing at all is an added token.

        Args:
            text: the run.
            at_start: whether the run begins the whole context, with no token before it.
        """
        if not text:
            return []
        if at_start:
            ids = self._inner.encode(text).ids
            return ids if self._refused.isdisjoint(ids) else self._encode(text)
        return list(self._encode_short(text)) if len(text) <= _CACHED_CHARACTERS else self._encode(text)

    def id_of(self, matched: str) -> int:
        """The id of an added token that :attr:`matcher` found, whitespace that it takes along included."""
        found = self.ids.get(matched)
        return self.ids[matched.strip()] if found is None else found

    def _encode(self, text: str) -> list[int]:
        ids = self._inner.encode(_GUARD + text).ids[1:]
        if self._refused.isdisjoint(ids):
            return ids
        if len(text) < 2:
            if text not in self.controls | self.marks:
                return ids  # a character that the vocabulary lacks: the unknown token
            raise InputError(f"the tokenizer has no way to encode {text!r} without one of its control tokens")
        middle = len(text) // 2  # the vocabulary itself holds a control token: cut the text until it is cut too
        return self._encode(text[:middle]) + self._encode(text[middle:])


def _matcher(tokens: Iterable[AddedToken]) -> re.Pattern[str] | None:
    """A pattern that finds added tokens as the tokenizer does: leftmost, then longest, each with its strip flags."""
    alternatives = [
        (r"(?:(?<!\s)\s+)?" if token.lstrip else "")
        + (rf"(?<!\w){re.escape(token.content)}(?!\w)" if token.single_word else re.escape(token.content))
        + (r"\s*" if token.rstrip else "")
        for token in sorted(tokens, key=lambda token: -len(token.content))
        if token.content
    ]
    return re.compile("|".join(alternatives)) if alternatives else None


def proper_prefixes(words: Collection[str]) -> frozenset[str]:
    """Every beginning of every word, the whole words left out."""
    return frozenset(word[:end] for word in words for end in range(1, len(word)))
