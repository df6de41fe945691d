"""Small tokenizers of every kind that renderers must cope with, trained on the spot, and chat templates for them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(__file__).parent / "templates"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
CORPUS = [
    "You see a red door to the north. The goal is to craft an oak plank. user assistant system tool",
    "user\nassistant\nsystem\ntool\n# Tools\n\nYou may call one or more functions reward=1 obs north south",
    "hello hello calculate calculate the reward is 12 < 13 > | im_start im_end think tool_call </ <|",
] * 4
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def template(name: str) -> str:
    return (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def chatml_tokenizer(chat_template: str | None = CHATML) -> Any:
    """Byte-level BPE as in GPT-2, with ChatML's tokens."""
    return _byte_level(CHATML_TOKENS, (), chat_template, eos="<|im_end|>", split=None)


@cache
def qwen_tokenizer(chat_template: str | None = None) -> Any:
    """Qwen's normalizer and split, and its markers that are added tokens without being called special."""
    return _byte_level(
        CHATML_TOKENS, QWEN_MARKS, chat_template or template("qwen3"), eos="<|im_end|>", split=QWEN_SPLIT
    )


@cache
def gluing_tokenizer() -> Any:
    """Like Qwen's, with line breaks that stick to the sign before them: ``>`` and two newlines are one token."""
    corpus = ["</tool_call>\n\nand </tool_call>\n\n"] * 20
    return _byte_level(CHATML_TOKENS, (), CHATML, eos="<|im_end|>", split=QWEN_SPLIT, corpus=corpus)


@cache
def marker_tokenizer(name: str) -> Any:
    """Byte-level BPE with the tokens of one of the other templates."""
    tokens: dict[str, tuple[tuple[str | AddedToken, ...], tuple[str, ...], str]] = {
        "role_markers": (
            ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
            (),
            "<|endoftext|>",
        ),
        "strict_turns": (("<bos>", AddedToken("</turn>", rstrip=True, special=True), "<turn>", "<eos>"), (), "<eos>"),
        "tools_last": (
            ("<bos>", "</s>", "[INST]", "[/INST]", "[TOOLS]", "[/TOOLS]", "[RESULT]", "[/RESULT]"),
            (),
            "</s>",
        ),
        "thinking_prompt": (("<bos>", "<|eos|>"), ("<|User|>", "<|Assistant|>", "<think>", "</think>"), "<|eos|>"),
    }
    specials, marks, eos = tokens[name]
    return _byte_level(specials, marks, template(name), eos=eos, split=None)


@cache
def sentencepiece_tokenizer(chat_template: str = CHATML) -> Any:
    """As Llama: a prefix space only at the very start, bytes as fallback, the control tokens within the vocabulary."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Metaspace()])
    specials = ["<unk>", "<s>", *CHATML_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=500, special_tokens=specials, show_progress=False)
    )
    # the trainer has made special tokens of the bytes as well: only the true ones are added anew
    fresh = Tokenizer(tokenizer.model)
    fresh.pre_tokenizer, fresh.decoder = tokenizer.pre_tokenizer, tokenizer.decoder
    fresh.add_special_tokens(["<unk>", "<s>", *CHATML_TOKENS])
    return _wrap(fresh, chat_template, eos="<|im_end|>", bos="<s>", unk="<unk>")


@cache
def unigram_tokenizer() -> Any:
    """As T5: the model's own vocabulary holds the control tokens, so plain text can spell them."""
    pieces = [("<unk>", 0.0), *((token, -1.0) for token in CHATML_TOKENS)]
    letters = sorted({char for line in CORPUS for char in line} | set("<|>_/"))
    model = models.Unigram([*pieces, *((char, -8.0) for char in letters), ("door", -9.0)], unk_id=0)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.add_special_tokens(["<unk>", *CHATML_TOKENS])
    return _wrap(tokenizer, CHATML, eos="<|im_end|>", unk="<unk>")


def _byte_level(
    specials: tuple[str | AddedToken, ...],
    marks: tuple[str, ...],
    chat_template: str | None,
    *,
    eos: str,
    split: str | None,
    corpus: list[str] = CORPUS,
) -> Any:
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    tokenizer.pre_tokenizer = (
        byte_level
        if split is None
        else pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), byte_level])
    )
    if split is not None:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        corpus, trainers.BpeTrainer(vocab_size=450, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens(list(specials))
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in marks])
    names = [str(getattr(token, "content", token)) for token in specials]
    return _wrap(tokenizer, chat_template, eos=eos, bos=names[0] if names[0] in ("<s>", "<bos>") else None)


def _wrap(
    tokenizer: Tokenizer, chat_template: str | None, *, eos: str, bos: str | None = None, unk: str | None = None
) -> Any:
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, bos_token=bos, unk_token=unk)
    wrapped.chat_template = chat_template
    return wrapped
