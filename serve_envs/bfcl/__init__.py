"""BFCL's multi-turn tasks: a user asks again and again, and the state of eight small services must be as it should."""
