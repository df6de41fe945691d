"""The exact ChatML renderer where the template can do nothing else, the template's own otherwise."""

import pytest
from chat_tokenizers import CHATML, SMOLLM2, chatml_tokenizer, marker_tokenizer, qwen_tokenizer, template

from rllib_agentic.errors import InputError
from rllib_agentic.rendering import ChatMLRenderer, HFTemplateRenderer, renderer_for
from rllib_agentic.trajectory import Message


@pytest.mark.parametrize("source", [CHATML, SMOLLM2, CHATML.replace("message['role']", "message.role")])
def test_plain_chatml_is_recognised_with_its_default_system(source):
    tokenizer = chatml_tokenizer(source)
    renderer = renderer_for(tokenizer, stop_ids=[7])
    assert isinstance(renderer, ChatMLRenderer)
    assert renderer.stop_ids == {7, tokenizer.eos_token_id}
    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], add_generation_prompt=True, return_dict=False
    )
    assert renderer.render([Message("user", "hi")]).tolist() == expected


def test_smollm2_is_chatml(smollm2_tokenizer):
    assert isinstance(renderer_for(smollm2_tokenizer), ChatMLRenderer)


@pytest.mark.parametrize(
    "source",
    [
        template("thinkstrip"),
        template("qwen3"),
        CHATML.replace("message['content']", "message['content'].strip()"),
        CHATML.replace("message['content']", "message['content'] | trim"),
        CHATML.replace("'<|im_start|>' + message['role']", "'<|im_start|>' + 'user'", 1),
        CHATML.replace("'<|im_end|>\n'", "'<|im_end|>'"),
        CHATML.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n"),
        CHATML.replace(
            "{{ '<|im_start|>'", "{% if message['content'] | length < 0 %}{{ '\n' }}{% endif %}{{ '<|im_start|>'", 1
        ),
        # alike in every trial, but it looks at the content
        CHATML.replace("{{ '<|im_start|>'", "{% if 'secret' in message['content'] %}!{% endif %}{{ '<|im_start|>'", 1),
    ],
)
def test_anything_more_than_chatml_is_rendered_by_its_template(source):
    assert isinstance(renderer_for(chatml_tokenizer(), chat_template=source), HFTemplateRenderer)
    assert isinstance(renderer_for(qwen_tokenizer(source)), HFTemplateRenderer)


def test_other_families_are_rendered_by_their_template():
    assert isinstance(renderer_for(marker_tokenizer("role_markers")), HFTemplateRenderer)


def test_without_a_template_the_vocabulary_decides():
    assert isinstance(renderer_for(chatml_tokenizer(None)), ChatMLRenderer)
    tokenizer = marker_tokenizer("role_markers")
    source, tokenizer.chat_template = tokenizer.chat_template, None
    try:
        with pytest.raises(InputError, match=r"neither a chat template nor the tokens <\|im_start\|> and <\|im_end\|>"):
            renderer_for(tokenizer)
    finally:
        tokenizer.chat_template = source
