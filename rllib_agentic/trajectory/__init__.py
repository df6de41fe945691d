"""What happened in an episode, as frozen data: messages, turns, trajectories, rows. No torch, no ray."""

from rllib_agentic.trajectory.message import Message, ToolCall
from rllib_agentic.trajectory.row import Row, rows_of
from rllib_agentic.trajectory.trajectory import Task, Trajectory
from rllib_agentic.trajectory.turn import FinishReason, LegalTokens, Turn

__all__ = ["FinishReason", "LegalTokens", "Message", "Row", "Task", "ToolCall", "Trajectory", "Turn", "rows_of"]
