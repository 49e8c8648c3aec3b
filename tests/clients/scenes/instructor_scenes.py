"""Instructor over the openai package, by JSON schema; its mode with tools is refused, because tools are."""

import instructor
from instructor import Mode
from known import MESSAGES, MODEL, ROLES, STRICT, URL, same
from openai import OpenAI
from pydantic import BaseModel

USES = ("chat", "stream", "abstention", "structured")
client = instructor.from_openai(OpenAI(base_url=f"{URL}/v1", api_key="x"), mode=Mode.JSON_SCHEMA)


class Roles(BaseModel):
    Ava: str
    Zoey: str


def chat():
    roles, raw = client.chat.completions.create_with_completion(model=MODEL, messages=MESSAGES, response_model=Roles)
    same((roles.model_dump(), raw.raydebm["decision"]), (ROLES, "accept"))
    return "with the completion"


def stream():
    *_, last = client.chat.completions.create_partial(model=MODEL, messages=MESSAGES, response_model=Roles)
    same(last.model_dump(), ROLES)
    return "`create_partial`"


def abstention():
    try:
        client.chat.completions.create(model=STRICT, messages=MESSAGES, response_model=Roles, max_retries=0)
    except Exception as error:
        return f"raises `{type(error).__name__}`"
    raise AssertionError("an abstention gave an object")


def structured():
    roles = client.chat.completions.create(model=MODEL, messages=MESSAGES, response_model=Roles)
    same(roles.model_dump(), ROLES)
    return "`Mode.JSON_SCHEMA`"
