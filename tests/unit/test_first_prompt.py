"""What the reset says and which tools there are reach the policy's first prompt, whatever carries the session."""

from __future__ import annotations

import asyncio
from functools import partial

import httpx
from chat_tokenizers import chatml_tokenizer

from rllib_agentic import ToolEnv, tool
from rllib_agentic.envs.env import EnvSchema, Observation
from rllib_agentic.envs.hosting import EnvHost
from rllib_agentic.envs.http_transport import HttpTransport
from rllib_agentic.envs.local import LocalClient
from rllib_agentic.envs.remote import RemoteClient
from rllib_agentic.envs.session import EnvClient
from rllib_agentic.rendering.chatml import ChatMLRenderer
from rllib_agentic.tools import Grade
from rllib_agentic.trajectory import Message, Task
from serve_envs.gateway import make_http_app
from serve_envs.worker import EnvWorker


class Sorting(ToolEnv):
    """One task, one tool."""

    def schema(self) -> EnvSchema:
        return self.describe("sorting", splits={"train": 1}, splits_hash="1")

    def begin(self, split: str, index: int, seed: int) -> Observation:
        return Observation((Message("user", "TASK-7731: sort the list"),))

    def grade(self, answer: str) -> Grade:
        return Grade(0.0, success=False)

    @tool
    def sort(self, numbers: list[int]) -> list[int]:
        """Put numbers in order."""
        return sorted(numbers)


def test_task_and_tools_are_in_the_first_prompt() -> None:  # EV10
    async def first_messages(client: EnvClient) -> tuple[Message, ...]:
        session = await client.create(Task("sorting", "train", 0, 0))
        await client.aclose()
        return session.first.messages

    local = asyncio.run(first_messages(LocalClient(partial(Sorting))))
    app = make_http_app(EnvWorker(EnvHost(Sorting)))
    remote = asyncio.run(first_messages(RemoteClient(HttpTransport("http://env", transport=httpx.ASGITransport(app)))))
    assert local == remote
    tokenizer = chatml_tokenizer()
    prompt = tokenizer.decode(ChatMLRenderer(tokenizer, default_system=None).render(local))
    assert "TASK-7731: sort the list" in prompt
    assert '"sort"' in prompt and "Put numbers in order." in prompt
