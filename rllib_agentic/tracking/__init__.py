"""What people see of a run: MLflow, the terminal, the learning curve, the table at its end."""

from rllib_agentic.tracking.history import HistoryCallback, read_history
from rllib_agentic.tracking.mlflow import AgenticMLflowCallback
from rllib_agentic.tracking.plot import plot_learning_curve
from rllib_agentic.tracking.progress import ProgressCallback
from rllib_agentic.tracking.summary import summarize

__all__ = [
    "AgenticMLflowCallback",
    "HistoryCallback",
    "ProgressCallback",
    "plot_learning_curve",
    "read_history",
    "summarize",
]
