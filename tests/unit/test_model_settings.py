import pytest

from rllib_agentic.components import parse_settings
from rllib_agentic.errors import InputError
from rllib_agentic.rl_module.model_settings import ModelSettings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "exactly one of 'preset' .* neither was given"),
        ({"preset": "tiny", "path": "somewhere"}, "both were given"),
        ({"preset": "tinny"}, "model.preset"),
        ({"preset": "tiny", "hiden_size": 64}, "Did you mean 'hidden_size'"),
        ({"preset": "tiny", "hidden_size": 36, "num_heads": 4}, "multiple of 2 \\* num_heads"),
        ({"path": "owner/name", "seed": 3}, "seed: only the preset 'tiny'"),
        ({"preset": "smollm2", "num_layers": 2}, "num_layers: only the preset 'tiny'"),
        ({"preset": "tiny", "dtype": "float16"}, "model.dtype"),
        ({"path": ""}, "model.path"),
    ],
)
def test_wrong_settings_are_refused_with_the_key_and_what_was_expected(given, said):
    with pytest.raises(InputError, match=said):
        parse_settings(ModelSettings, given, "model")


def test_settings_survive_being_dumped_whole():
    for settings in (ModelSettings(preset="smollm2"), ModelSettings(preset="tiny", num_layers=2)):
        assert parse_settings(ModelSettings, settings.model_dump(), "model") == settings
