"""The section ``renderer``: a template of one's own, its variables, and what becomes of earlier reasoning."""

from pathlib import Path

import numpy as np
import pytest
from chat_tokenizers import chatml_tokenizer, qwen_tokenizer, template

from rllib_agentic.errors import InputError, PrefixError
from rllib_agentic.rendering import ChatMLRenderer, HFTemplateRenderer
from rllib_agentic.rendering.settings import RendererSettings
from rllib_agentic.trajectory import FinishReason, Message

ASKED = [Message("user", "Add 2 and 3.")]
THOUGHTFUL = "<think>\n2+3 is 5\n</think>\n\n5"
NEXT = [Message("user", "Now double it.")]


def after_a_thought(settings: RendererSettings) -> np.ndarray:
    tokenizer = qwen_tokenizer(template("qwen3"))
    renderer = settings.build(tokenizer)
    said = np.array([*tokenizer.encode(THOUGHTFUL), renderer.end_of_turn_id], np.int32)
    return renderer.bridge(np.concatenate([renderer.render(ASKED), said]), FinishReason.STOP, NEXT)


def test_earlier_reasoning_is_as_the_template_has_it_unless_it_is_kept() -> None:
    with pytest.raises(PrefixError, match="reasoning"):
        after_a_thought(RendererSettings())
    assert len(after_a_thought(RendererSettings(earlier_reasoning="kept")))


def test_variables_reach_the_template() -> None:
    tokenizer = qwen_tokenizer(template("qwen3"))
    plain, quiet = (RendererSettings(template_kwargs=kw).build(tokenizer) for kw in ({}, {"enable_thinking": False}))
    prompt = tokenizer.decode(plain.render(ASKED))
    assert tokenizer.decode(quiet.render(ASKED)) == prompt + "<think>\n\n</think>\n\n"


def test_a_template_of_ones_own_replaces_the_models(tmp_path: Path) -> None:
    tokenizer = chatml_tokenizer()
    assert isinstance(RendererSettings().build(tokenizer), ChatMLRenderer)
    file = tmp_path / "mine.jinja"
    file.write_text(template("thinkstrip"))
    mine = RendererSettings(chat_template=str(file)).build(tokenizer)
    assert isinstance(mine, HFTemplateRenderer)
    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": ASKED[0].content}],
        chat_template=template("thinkstrip"),
        add_generation_prompt=True,
        return_dict=False,
    )
    assert mine.render(ASKED).tolist() == expected


def test_a_template_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"renderer.chat_template: .*no.jinja"):
        RendererSettings(chat_template=str(tmp_path / "no.jinja")).build(chatml_tokenizer())
    (tmp_path / "broken.jinja").write_text("{% for m in %}")
    with pytest.raises(InputError, match="chat template"):
        RendererSettings(chat_template=str(tmp_path / "broken.jinja")).build(chatml_tokenizer())
