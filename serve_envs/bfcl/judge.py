"""Whether a turn was done right, by the package's own rules."""

from __future__ import annotations

from collections.abc import Sequence

from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import response_checker, state_checker

from serve_envs.bfcl.calls import GoldCall
from serve_envs.bfcl.scenarios import Scenario
from serve_envs.bfcl.services import Services


class Judge:
    """Plays the right calls beside the agent's, turn by turn, and compares.

    A turn is right if afterwards every service has the state that the right calls bring about, and if the agent has
    seen, in this turn or before, all that the right calls show. A turn without right calls is not judged,
    as in the package.

    Args:
        scenario: the task.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._gold = Services(scenario)
        self._seen: list[str] = []

    def turn_is_right(self, turn: int, services: Services, seen: Sequence[str]) -> bool:
        """Judge the next turn; turns come one after the other.

        Args:
            turn: its number, from 0.
            services: the agent's, as they are after the turn.
            seen: results of the agent's calls in this turn.
        """
        calls: tuple[GoldCall, ...] = self._scenario.gold[turn]
        expected = [self._gold.call(call.name, call.positional, call.named) for call in calls]
        self._seen += seen
        if not calls:
            return True
        if not seen:
            return False
        same_state = state_checker(services.instances, self._gold.instances)["valid"]
        return bool(same_state and response_checker(self._seen, expected, turn)["valid"])
