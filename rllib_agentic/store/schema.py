"""The Parquet schema of stored trajectories: one row a turn, everything that happened, nothing that was derived twice.

A partition is a folder ``iteration=000012`` with one file ``part-0.parquet``; the iteration is the partition's
name (pandas, Arrow, DuckDB and Spark all make a column of it) and stands in the file's metadata too.

Columns of the trajectory, repeated on each of its rows:

==================  ================  ==================================================================
column              type              meaning
==================  ================  ==================================================================
schema_version      int16             :data:`SCHEMA_VERSION` at writing
attempt             int32             1, and one more for every time the iteration was written anew
trajectory          int32             the trajectory's number in its iteration, from 0
env, split          dictionary        the task: environment and split
task_index          int64             the task's number in its split
task_seed           int64             the seed of the environment
group_id            dictionary        trajectories of one group share it
member              int32             number within the group
terminated          bool              the task ended
truncated           bool              a limit ended it
success             bool              the task was solved
end_reason          dictionary        why the episode ended, one word
invalid             dictionary, null  kind of infrastructure failure; null where the trajectory is valid
num_turns           int32             turns of the trajectory; 0 only where invalid
total_reward        float64           sum of the turns' raw rewards (for queries; the reader ignores it)
kept                bool, null        whether the filters kept it for training; null where nobody said
==================  ================  ==================================================================

On a trajectory's first row, null on its others (they can be long):

==================  ================  ==================================================================
prompt              string            the messages of the environment's reset, as JSON
trajectory_metrics  string            numbers about the episode, as JSON
==================  ================  ==================================================================

Columns of the turn. A trajectory without turns has one row, on which they are all null:

==================  ================  ==================================================================
turn                int32             the turn's number in its trajectory, from 0
segment             int32             the segment that the turn belongs to
context_ids         list<int32>       the tokens *added* to the context before the agent spoke; never trained
action_ids          list<int32>       the sampled tokens, a sampled stop id included
logprobs            list<float32>     one a sampled token, bit for bit as the engine gave them
policy_versions     list<int32>       the version of the weights that sampled each token
finish_reason       dictionary        ``stop``, ``stop_string``, ``length`` or ``abort``
text                string            the decoded action, for people
observation         string            the environment's answer: messages as JSON
reward              float64           the turn's raw reward
rewards             map<string, f64>  named components of the reward
legal_offsets       list<int32>, null legal tokens, compressed sparse rows: position ``i`` allowed
legal_ids           list<int32>, null ``legal_ids[legal_offsets[i]:legal_offsets[i + 1]]``; empty: no constraint
state_key           string, null      hash of the state before the action
turn_metrics        string            numbers about the turn, as JSON
advantages          list<float32>,    one a sampled token as trained; null where the turn was not trained
                    null
==================  ================  ==================================================================

JSON columns hold real characters, not escapes. Values in metrics that JSON has no form for are stored as text,
and a lone surrogate in ``text`` becomes U+FFFD; everything else comes back exactly as it was.
"""

from __future__ import annotations

import re

import pyarrow as pa

SCHEMA_VERSION = 1
"""Raised whenever a column changes its meaning; readers refuse newer files."""

_WORD = pa.dictionary(pa.int32(), pa.string())
_IDS = pa.list_(pa.int32())

SCHEMA = pa.schema(
    [
        pa.field("schema_version", pa.int16(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("trajectory", pa.int32(), nullable=False),
        pa.field("env", _WORD),
        pa.field("split", _WORD),
        pa.field("task_index", pa.int64(), nullable=False),
        pa.field("task_seed", pa.int64(), nullable=False),
        pa.field("group_id", _WORD),
        pa.field("member", pa.int32(), nullable=False),
        pa.field("terminated", pa.bool_(), nullable=False),
        pa.field("truncated", pa.bool_(), nullable=False),
        pa.field("success", pa.bool_(), nullable=False),
        pa.field("end_reason", _WORD),
        pa.field("invalid", _WORD),
        pa.field("num_turns", pa.int32(), nullable=False),
        pa.field("total_reward", pa.float64(), nullable=False),
        pa.field("kept", pa.bool_()),
        pa.field("prompt", pa.string()),
        pa.field("trajectory_metrics", pa.string()),
        pa.field("turn", pa.int32()),
        pa.field("segment", pa.int32()),
        pa.field("context_ids", _IDS),
        pa.field("action_ids", _IDS),
        pa.field("logprobs", pa.list_(pa.float32())),
        pa.field("policy_versions", _IDS),
        pa.field("finish_reason", _WORD),
        pa.field("text", pa.string()),
        pa.field("observation", pa.string()),
        pa.field("reward", pa.float64()),
        pa.field("rewards", pa.map_(pa.string(), pa.float64())),
        pa.field("legal_offsets", _IDS),
        pa.field("legal_ids", _IDS),
        pa.field("state_key", pa.string()),
        pa.field("turn_metrics", pa.string()),
        pa.field("advantages", pa.list_(pa.float32())),
    ]
)

PARTITION = re.compile(r"iteration=(\d+)")
PART = "part-0.parquet"
