"""Every trajectory of a run in Parquet: written atomically, read back exactly, shown to people."""

from rllib_agentic.store.page import as_html
from rllib_agentic.store.reader import StoredTrajectory, TrajectoryReader, find_stores
from rllib_agentic.store.schema import SCHEMA, SCHEMA_VERSION
from rllib_agentic.store.view import as_dict, as_renderable, as_text
from rllib_agentic.store.writer import TrajectoryWriter

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "StoredTrajectory",
    "TrajectoryReader",
    "TrajectoryWriter",
    "as_dict",
    "as_html",
    "as_renderable",
    "as_text",
    "find_stores",
]
