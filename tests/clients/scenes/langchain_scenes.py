"""LangChain: ChatOpenAI, and CohereRerank for reranking."""

from known import DOCUMENTS, MODEL, ORDER, PUZZLE, RIGHT, ROLES, STRICT, URL, same
from langchain_cohere import CohereRerank
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

USES = ("chat", "stream", "abstention", "structured", "rerank")


class Roles(BaseModel):
    Ava: str
    Zoey: str


def model(name=MODEL):
    return ChatOpenAI(model=name, base_url=f"{URL}/v1", api_key="x")


def chat():
    same(model().invoke(PUZZLE).content, RIGHT)
    return "text"


def stream():
    same("".join(chunk.content for chunk in model().stream(PUZZLE)), RIGHT)
    return "text"


def abstention():
    message = model(STRICT).invoke(PUZZLE)
    same(message.content, "")
    assert "sigma" in message.additional_kwargs["refusal"]
    return "`additional_kwargs['refusal']`"


def structured():
    roles = model().with_structured_output(Roles, method="json_schema").invoke(PUZZLE)
    same(roles.model_dump(), ROLES)
    return "`method='json_schema'`"


def rerank():
    ranking = CohereRerank(model=MODEL, cohere_api_key="x", base_url=URL, top_n=2).rerank(DOCUMENTS, PUZZLE)
    same([one["index"] for one in ranking], ORDER)
    return "`CohereRerank`"
