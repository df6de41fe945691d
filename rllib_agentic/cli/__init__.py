"""The `rllib` command."""
