"""Groups that are played in the background of an event loop, and handed over one by one as they land."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rllib_agentic.rollout.episode import EpisodePlan, Rollout
from rllib_agentic.rollout.group import play
from rllib_agentic.trajectory.trajectory import Trajectory


class GroupsInFlight:
    """Plays groups while its owner does something else. All of it belongs to one event loop.

    Groups do not wait for one another; episodes that exceed ``max_concurrent_episodes`` wait for a place, first come
    first served.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[list[Trajectory]]] = {}
        self._places: tuple[int, asyncio.Semaphore] = (0, asyncio.Semaphore(0))

    @property
    def group_ids(self) -> tuple[str, ...]:
        """Groups that were launched and not handed over yet."""
        return tuple(self._tasks)

    def launch(self, rollout: Rollout, plans: Sequence[EpisodePlan]) -> None:
        """Begin to play the plans, group by group. A group that is in flight already goes on as it is."""
        most = rollout.settings.max_concurrent_episodes
        if self._places[0] != most:
            self._places = (most, asyncio.Semaphore(most))
        groups: dict[str, list[EpisodePlan]] = {}
        for plan in plans:
            groups.setdefault(plan.group_id, []).append(plan)
        for group_id, members in groups.items():
            if group_id not in self._tasks:
                self._tasks[group_id] = asyncio.create_task(play(rollout, members, self._places[1]))

    async def landed(self, wait_s: float) -> list[Trajectory]:
        """The trajectories of all groups that are complete; each is handed over once.

        Args:
            wait_s: how long to wait for the first one, where none is complete yet.

        Raises:
            Exception: the first bug or bad input that a group met.
        """
        if not self._tasks:
            return []
        done, _ = await asyncio.wait(self._tasks.values(), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        complete = [group_id for group_id, task in self._tasks.items() if task in done]
        return [trajectory for group_id in complete for trajectory in self._tasks.pop(group_id).result()]

    async def recall(self) -> None:
        """End everything in flight; sessions are closed when this returns."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
