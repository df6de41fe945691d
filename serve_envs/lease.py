"""Who a Serve application belongs to, and whether they still live."""

from __future__ import annotations

from dataclasses import dataclass

import ray
from ray._private.state import state  # no public call tells this without the dashboard


@dataclass(frozen=True, slots=True)
class Lease:
    """Over as soon as its holder is dead: a driver that was killed stops nothing itself.

    Attributes:
        job_id: of the holder's Ray job, as hexadecimal digits.
        actor_id: of the actor that the holder is, a Tune trial for example; None for a driver.
    """

    job_id: str
    actor_id: str | None

    @classmethod
    def of_caller(cls) -> Lease:
        """One that the calling process holds."""
        context = ray.get_runtime_context()
        return cls(context.get_job_id(), context.get_actor_id())

    def is_over(self) -> bool:
        """Ask the cluster; blocks for a moment."""
        if self.actor_id is not None:
            actor = state.actor_table(self.actor_id)
            if not actor or actor["State"] == "DEAD":
                return True
        jobs = {job["JobID"]: job["IsDead"] for job in state.job_table()}
        return jobs.get(self.job_id, True)
