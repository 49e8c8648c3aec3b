"""LiteLLM: chat, stream, refusal, response format, rerank."""

import json

import litellm
from known import DOCUMENTS, MESSAGES, MODEL, ORDER, PUZZLE, RIGHT, ROLES, STRICT, URL, same
from pydantic import BaseModel

USES = ("chat", "stream", "abstention", "structured", "rerank")


class Roles(BaseModel):
    Ava: str
    Zoey: str


def ask(model=MODEL, **more):
    return litellm.completion(model=f"openai/{model}", api_base=f"{URL}/v1", api_key="x", messages=MESSAGES, **more)


def chat():
    completion = ask()
    same((completion.choices[0].message.content, completion.raydebm["decision"]), (RIGHT, "accept"))
    return "text, `raydebm` as an extra field"


def stream():
    same("".join(chunk.choices[0].delta.content or "" for chunk in ask(stream=True)), RIGHT)
    return "text"


def abstention():
    message = ask(STRICT).choices[0].message
    same(message.content, None)
    assert "sigma" in message.refusal
    return "`message.refusal`"


def structured():
    same(json.loads(ask(response_format=Roles).choices[0].message.content), ROLES)
    return "`response_format`, JSON text"


def rerank():
    ranking = litellm.rerank(
        model=f"cohere/{MODEL}", api_base=URL, api_key="x", query=PUZZLE, documents=DOCUMENTS, top_n=2
    )
    same([one["index"] for one in ranking.results], ORDER)
    return "`litellm.rerank`"
