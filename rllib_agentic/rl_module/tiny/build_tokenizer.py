"""Make the tokenizer of the preset ``tiny`` out of our environments' own text.

Two steps, so that a changed environment does not silently change a tokenizer that checkpoints depend on::

    python -m rllib_agentic.rl_module.tiny.build_tokenizer collect   # play every environment -> corpus.json
    python -m rllib_agentic.rl_module.tiny.build_tokenizer build     # corpus.json -> tokenizer.json and its company

Both are deterministic: the same environments give the same corpus, the same corpus the same tokenizer.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from math import log2
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rllib_agentic.envs.baselines import HasExpert
from rllib_agentic.envs.env import Env, StepResult
from rllib_agentic.envs.registry import make_env

FOLDER = Path(__file__).parent
VOCABULARY = 4096
CORPUS_ENVIRONMENTS = (
    "babyai",
    "bandit",
    "frozenlake",
    "math_python",
    "maze",
    "sokoban",
    "textcraft",
    "wordle",
)
"""Whose words become tokens: the environments with few words. All other text is spelled in pieces of words."""
PAD, TURN_START, TURN_END = "<|pad|>", "<|im_start|>", "<|im_end|>"
# ChatML, and nothing that the conversation does not say: no default system prompt.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Words of the chat format and of nearly every environment; all others come out of the environments themselves.
_ALWAYS = "system user assistant tool Action action left right up down Left Right Up Down yes no Yes No"
_TASKS, _TURNS = 300, 12


def collect_corpus() -> dict[str, int]:
    """Words (as the tokenizer splits text) and how often they occur in the training splits of the environments.

    Heard are the observations, the admissible actions, and what the expert says where there is one.
    """
    splitter = _splitter()
    words: Counter[str] = Counter()
    for word in _ALWAYS.split():
        words.update(piece for form in (word, f" {word}") for piece, _ in splitter.pre_tokenize_str(form))
    for name in CORPUS_ENVIRONMENTS:
        env = make_env(name)
        try:
            for text in _texts(env, name):
                words.update(piece for piece, _ in splitter.pre_tokenize_str(text))
        finally:
            env.close()
    return dict(sorted(words.items()))


def build_tokenizer(corpus: dict[str, int]) -> PreTrainedTokenizerFast:
    """Byte-level BPE over a corpus: every text has an encoding, every digit is a token of its own."""
    tokenizer = Tokenizer(models.BPE())
    # The corpus holds words that are split and mapped to bytes already; blanks stand between them and nowhere else.
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, TURN_START, TURN_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_damped(corpus), trainer)
    tokenizer.pre_tokenizer = _splitter()
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=TURN_END,
        additional_special_tokens=[TURN_START],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _splitter() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Split(Regex(r" ?\p{L}+| ?[^\s\p{L}\p{N}]| ?\p{N}|\s"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _texts(env: Env, name: str) -> Iterator[str]:
    schema = env.schema()
    yield schema.action_format
    for index in range(min(_TASKS, schema.splits["train"])):
        chooser = random.Random(f"{name}/{index}")
        observation = env.reset("train", index, index)
        result: StepResult | None = None
        for _ in range(_TURNS):
            yield from (message.content for message in observation.messages)
            actions = list(observation.actions or ())
            yield from actions
            if result is not None and (result.terminated or result.truncated):
                break
            if isinstance(env, HasExpert):
                actions.append(env.expert_action())
                yield actions[-1]
            if not actions:
                break
            result = env.step(chooser.choice(actions))
            observation = result.observation


def _damped(corpus: dict[str, int]) -> Iterator[str]:
    # By the logarithm, so that an environment with few words does not take the merges of one with many.
    for word, count in sorted(corpus.items()):
        yield " ".join([word] * (1 + int(log2(count))))


def main(argv: list[str]) -> None:
    """Run one of the two steps."""
    path = FOLDER / "corpus.json"
    if argv == ["collect"]:
        path.write_text(json.dumps(collect_corpus(), ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    elif argv == ["build"]:
        build_tokenizer(json.loads(path.read_text(encoding="utf-8"))).save_pretrained(FOLDER)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
