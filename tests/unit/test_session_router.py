"""Which replica a session's requests go to, while replicas come and go."""

from types import SimpleNamespace
from typing import Any

from rllib_agentic.envs.wire import routing_key
from serve_envs.routing import _holder


def replica(name: str) -> Any:
    return SimpleNamespace(replica_id=SimpleNamespace(unique_id=name))


def holder(key: str, replicas: list[Any]) -> str:
    request: Any = SimpleNamespace(metadata=SimpleNamespace(session_id=key, internal_request_id="r"))
    return _holder(request, replicas).replica_id.unique_id


def test_live_sessions_stay_where_they_are_when_a_replica_joins() -> None:  # FT06: from 2 to 3, 20 live sessions
    two = [replica("a1"), replica("b2")]
    sessions = [f"{'a1' if n % 2 else 'b2'}.{n}" for n in range(20)]
    before = [holder(routing_key(session), two) for session in sessions]
    assert before == ["a1" if n % 2 else "b2" for n in range(20)]
    for three in ([*two, replica("c3")], [replica("c3"), *two]):
        assert [holder(routing_key(session), three) for session in sessions] == before


def test_only_the_sessions_of_a_replica_that_goes_go_elsewhere() -> None:
    three = [replica("a1"), replica("b2"), replica("c3")]
    sessions = [f"{three[n % 3].replica_id.unique_id}.{n}" for n in range(30)]
    after = {session: holder(routing_key(session), three[1:]) for session in sessions}
    for session, home in after.items():
        named = session.split(".")[0]
        assert home == named if named != "a1" else home in ("b2", "c3")  # which answer that they know no such session


def test_a_key_that_names_nobody_goes_to_one_replica_from_every_gateway() -> None:
    replicas = [replica(name) for name in ("a1", "b2", "c3")]
    keys = [f"somebodys-{n}" for n in range(300)]
    homes = [holder(key, replicas) for key in keys]
    assert homes == [holder(key, replicas[::-1]) for key in keys]
    assert all(60 < homes.count(one.replica_id.unique_id) < 140 for one in replicas)  # about a third each
