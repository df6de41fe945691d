"""Legal tokens: from action strings to a mask a position, for any tokenizer."""

import numpy as np
import pytest
from tiny_engine import STOP, byte_tokenizer

from rllib_agentic.engines.legal_tokens import ActionTries, TokenTrie
from rllib_agentic.errors import InputError


class TableTokenizer:
    """Encodes by a table, so that every id in a test is written out."""

    all_special_ids = (STOP, 3)

    def __init__(self, table: dict[str, list[int]]) -> None:
        self.table = table
        self.calls = 0

    def encode(self, text: str, *, add_special_tokens: bool, split_special_tokens: bool = False) -> list[int]:
        assert not add_special_tokens
        self.calls += 1
        return self.table[text]


def legal(trie: TokenTrie, *prefix: int) -> list[int]:
    return trie.at(prefix).tolist()


def test_every_position_allows_exactly_what_leads_to_an_action():
    tries = ActionTries(TableTokenizer({"up": [10], "up left": [10, 11], "down": [12, 13]}), STOP)
    trie = tries.trie(["up", "up left", "down"])
    assert legal(trie) == [10, 12]
    assert legal(trie, 10) == [STOP, 11]  # "up" may end here: it is a prefix of "up left"
    assert legal(trie, 10, 11) == [STOP]
    assert legal(trie, 12) == [13]
    assert legal(trie, 10, STOP) == []
    assert trie.at([]).dtype == np.int32


def test_a_prefix_may_be_an_array_and_must_be_legal():
    trie = TokenTrie([[10, STOP]])
    assert trie.at(np.array([10], np.int32)).tolist() == [STOP]
    with pytest.raises(ValueError, match="id 11 at position 1 is not legal; legal: \\[2\\]"):
        trie.at([10, 11])


def test_duplicates_and_texts_with_the_same_ids_count_once():
    tries = ActionTries(TableTokenizer({"go": [10], "GO": [10], "stay": [11]}), STOP)
    trie = tries.trie(["go", "GO", "stay", "stay"])
    assert legal(trie) == [10, 11]
    assert legal(trie, 10) == [STOP]


def test_no_action_is_an_error_that_says_what_to_do():
    with pytest.raises(InputError, match=r"no admissible action.*legal=None"):
        ActionTries(TableTokenizer({}), STOP).trie([])


def test_the_empty_text_is_the_turn_that_stops_at_once():
    assert legal(ActionTries(TableTokenizer({"": [], "go": [10]}), STOP).trie(["", "go"])) == [STOP, 10]


@pytest.mark.parametrize("ids", [[10, STOP, 11], [3]])
def test_an_action_with_a_control_token_in_it_is_refused(ids):
    with pytest.raises(InputError, match=r"'bad'.*control token"):
        ActionTries(TableTokenizer({"bad": ids}), STOP).trie(["bad"])


def test_text_that_spells_a_control_token_is_split_into_plain_tokens():  # TM12
    tokenizer = byte_tokenizer()
    trie = ActionTries(tokenizer, STOP).trie(["say <end>"])
    ids: list[int] = []
    while (following := legal(trie, *ids)) != [STOP]:
        assert len(following) == 1
        ids += following
    assert STOP not in ids
    assert tokenizer.decode(ids) == "say <end>"


def test_anything_but_a_string_is_refused():
    with pytest.raises(InputError, match="must be a string, got 5"):
        ActionTries(byte_tokenizer(), STOP).trie([5])  # type: ignore[list-item]


def test_encodings_and_tries_are_remembered_and_bounded():
    tokenizer = TableTokenizer({"a": [10], "b": [11], "c": [12]})
    tries = ActionTries(tokenizer, STOP, max_tries=2)
    first = tries.trie(["a", "b"])
    assert tries.trie(["a", "b"]) is first
    tries.trie(["b", "c"])
    assert tokenizer.calls == 3
    assert tries.trie(["a", "b"]) is first  # used again, so "b", "c" is the oldest now
    tries.trie(["c"])
    assert tries.trie(["a", "b"]) is first
    assert tokenizer.calls == 3
