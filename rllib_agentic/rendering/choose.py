"""Which renderer fits a tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import jinja2
from jinja2 import nodes

from rllib_agentic.errors import InputError
from rllib_agentic.rendering.append_rule import Entry
from rllib_agentic.rendering.chat_template import ChatTemplate
from rllib_agentic.rendering.chatml import ChatMLRenderer
from rllib_agentic.rendering.hf_template import HFTemplateRenderer

_START, _END = "<|im_start|>", "<|im_end|>"
_HARMLESS_NODES = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.For, nodes.If, nodes.Name, nodes.Const, nodes.Test),
    *(nodes.Getattr, nodes.Getitem, nodes.Add, nodes.Concat, nodes.And, nodes.Or, nodes.Not, nodes.Compare),
    *(nodes.Operand, nodes.Assign),
)
_CONTENTS = ("hi", "", " \n padded \n", "<think>\nthought\n</think>\n\nsaid", "<tool_response>\n1\n</tool_response>")


def renderer_for(
    tokenizer: Any,
    *,
    chat_template: str | None = None,
    stop_ids: Iterable[int] = (),
    template_kwargs: Mapping[str, Any] | None = None,
    earlier_reasoning: Literal["as_template", "kept"] = "as_template",
) -> ChatMLRenderer | HFTemplateRenderer:
    """The exact ChatML renderer where the chat template is ChatML and nothing else, otherwise the template's own.

    A tokenizer without a chat template gets plain ChatML if it has the control tokens.

    Args:
        tokenizer: a Hugging Face tokenizer with a ``tokenizers`` backend.
        chat_template: jinja source instead of the tokenizer's own.
        stop_ids: further ids that end a turn: the generation config's ``eos_token_id``, one or many.
        template_kwargs: further variables for the template.
        earlier_reasoning: see :class:`~rllib_agentic.rendering.hf_template.HFTemplateRenderer`.

    Raises:
        InputError: neither template nor ChatML tokens, or a template that cannot be used.
    """
    if not chat_template and not getattr(tokenizer, "chat_template", None):
        if {_START, _END} <= set(tokenizer.get_added_vocab()):
            return ChatMLRenderer(tokenizer, default_system=None, stop_ids=stop_ids)
        raise InputError(
            f"{tokenizer.name_or_path or type(tokenizer).__name__}: the tokenizer has neither a chat template nor the "
            f"tokens {_START} and {_END}: set tokenizer.chat_template, or give `chat_template`"
        )
    stop_ids = tuple(stop_ids)
    template = ChatTemplate(tokenizer, chat_template, template_kwargs)
    source = chat_template or tokenizer.get_chat_template()
    if {_START, _END} <= set(tokenizer.get_added_vocab()):
        default_system = _default_system(template)
        if _is_chatml(template, source, default_system):
            return ChatMLRenderer(tokenizer, default_system=default_system, stop_ids=stop_ids)
    return HFTemplateRenderer(
        tokenizer,
        chat_template,
        stop_ids=stop_ids,
        template_kwargs=template_kwargs,
        earlier_reasoning=earlier_reasoning,
    )


def _default_system(template: ChatTemplate) -> str | None:
    block = re.match(
        rf"{re.escape(_START)}system\n(.*?){re.escape(_END)}\n{re.escape(_START)}user\n",
        template([{"role": "user", "content": "hi"}]),
        re.DOTALL,
    )
    return block and block.group(1)


def _is_chatml(template: ChatTemplate, source: str, default_system: str | None) -> bool:
    """Whether the template can only do ChatML: its program is too plain to look at contents, and trials agree."""
    if template.shows_tools or not template.takes_system or not _is_plain(source, default_system):
        return False
    for content in _CONTENTS:
        message = {role: {"role": role, "content": content} for role in ("system", "user", "assistant", "tool")}
        for roles in ("user", "system user", "user assistant user", "system user assistant tool tool assistant user"):
            entries = [message[role] for role in roles.split()]
            if template(entries) != _chatml_text(entries, default_system):
                return False
    return True


def _is_plain(source: str, default_system: str | None) -> bool:
    """Whether the template has no calls, filters or macros, and no text but ChatML's own words."""
    try:
        program = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).parse(source)
    except jinja2.TemplateSyntaxError:
        return False
    if any(not isinstance(node, _HARMLESS_NODES) for node in program.find_all(nodes.Node)):
        return False
    texts = [str(node.value) for node in program.find_all(nodes.Const)]
    texts += [node.data for node in program.find_all(nodes.TemplateData)]
    words = re.compile(
        rf"{re.escape(_START)}|{re.escape(_END)}|\b(?:system|user|assistant|tool|role|content|0|1|True|False)\b|\s"
    )
    return all(not words.sub("", text.replace(default_system or "\0", "")) for text in texts)


def _chatml_text(entries: list[Entry], default_system: str | None) -> str:
    if entries[0]["role"] != "system" and default_system is not None:
        entries = [{"role": "system", "content": default_system}, *entries]
    turns = "".join(f"{_START}{entry['role']}\n{entry['content']}{_END}\n" for entry in entries)
    return f"{turns}{_START}assistant\n"
