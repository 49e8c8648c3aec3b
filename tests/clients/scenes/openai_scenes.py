"""The openai package: chat, stream, refusal, parsed output."""

from known import MESSAGES, MODEL, RIGHT, ROLES, STRICT, URL, same
from openai import OpenAI
from pydantic import BaseModel

USES = ("chat", "stream", "abstention", "structured")
client = OpenAI(base_url=f"{URL}/v1", api_key="x")


class Roles(BaseModel):
    Ava: str
    Zoey: str


def chat():
    completion = client.chat.completions.create(model=MODEL, messages=MESSAGES)
    same((completion.choices[0].message.content, completion.raydebm["decision"]), (RIGHT, "accept"))
    return "text, `raydebm` as an extra field"


def stream():
    chunks = list(client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True))
    same("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), RIGHT)
    return "text"


def abstention():
    message = client.chat.completions.create(model=STRICT, messages=MESSAGES).choices[0].message
    same(message.content, None)
    assert "sigma" in message.refusal, message.refusal
    return "`message.refusal`"


def structured():
    completion = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Roles)
    same(completion.choices[0].message.parsed.model_dump(), ROLES)
    return "`chat.completions.parse`"
