"""Pydantic AI: text and native output."""

import asyncio

from known import MODEL, PUZZLE, RIGHT, ROLES, STRICT, URL, same
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

USES = ("chat", "stream", "abstention", "structured")


class Roles(BaseModel):
    Ava: str
    Zoey: str


def agent(name=MODEL, **more):
    return Agent(OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{URL}/v1", api_key="x")), **more)


def chat():
    same(agent().run_sync(PUZZLE).output, RIGHT)
    return "text"


def stream():
    async def text():
        async with agent().run_stream(PUZZLE) as run:
            return await run.get_output()

    same(asyncio.run(text()), RIGHT)
    return "text"


def abstention():
    try:
        run = agent(STRICT, retries=0).run_sync(PUZZLE)
    except Exception as error:
        return f"raises `{type(error).__name__}`"
    raise AssertionError(f"an abstention gave {run.output!r}")


def structured():
    same(agent(output_type=NativeOutput(Roles)).run_sync(PUZZLE).output.model_dump(), ROLES)
    return "`NativeOutput`"
