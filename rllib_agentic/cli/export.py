"""``rllib export``: a checkpoint's policy as a Hugging Face folder."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def add_command(commands: Any) -> None:
    """Register ``export``."""
    parser = commands.add_parser("export", help="write a checkpoint's policy as a Hugging Face folder")
    parser.add_argument("checkpoint", help="a checkpoint's folder, or an experiment's (its newest checkpoint)")
    parser.add_argument("folder", help="where to write; must not exist, or be empty")
    parser.add_argument("--adapter", action="store_true", help="the LoRA adapters alone, as peft stores them")
    parser.set_defaults(command=export)


def export(given: argparse.Namespace) -> int:
    """Read the weights out of the checkpoint and write config, safetensors and tokenizer."""
    from rllib_agentic.algorithms.checkpoints import find_checkpoint
    from rllib_agentic.rl_module.export import export_adapter, export_hf

    if given.adapter:
        folder = export_adapter(find_checkpoint(given.checkpoint), given.folder)
        print(f"{folder}: load it with PeftModel.from_pretrained(base, {str(folder)!r})", file=sys.stderr)
        print(folder)
        return 0
    folder = export_hf(find_checkpoint(given.checkpoint), given.folder)
    print(f"{folder}: load it with AutoModelForCausalLM.from_pretrained({str(folder)!r})", file=sys.stderr)
    print(folder)
    return 0
