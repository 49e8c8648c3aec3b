"""LlamaIndex: OpenAILike, and CohereRerank for reranking."""

from known import DOCUMENTS, MODEL, ORDER, PUZZLE, RIGHT, ROLES, STRICT, URL, same
from llama_index.core.llms import ChatMessage
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.llms.openai_like import OpenAILike
from llama_index.postprocessor.cohere_rerank import CohereRerank
from pydantic import BaseModel

USES = ("chat", "stream", "abstention", "structured", "rerank")


class Roles(BaseModel):
    Ava: str
    Zoey: str


def model(name=MODEL, **more):
    return OpenAILike(model=name, api_base=f"{URL}/v1", api_key="x", is_chat_model=True, **more)


def asked():
    return [ChatMessage(role="user", content=PUZZLE)]


def chat():
    same(model().chat(asked()).message.content, RIGHT)
    return "text"


def stream():
    same("".join(chunk.delta or "" for chunk in model().stream_chat(asked())), RIGHT)
    return "text"


def abstention():
    response = model(STRICT).chat(asked())
    assert not response.message.content, response.message.content
    assert "sigma" in response.raw.choices[0].message.refusal
    return "`raw.choices[0].message.refusal`"


def structured():
    response = model(should_use_structured_outputs=True).as_structured_llm(Roles).chat(asked())
    same(response.raw.model_dump(), ROLES)
    return "`should_use_structured_outputs`"


def rerank():
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(place))) for place, text in enumerate(DOCUMENTS)]
    ranking = CohereRerank(model=MODEL, api_key="x", base_url=URL, top_n=2).postprocess_nodes(nodes, query_str=PUZZLE)
    same([int(one.node.node_id) for one in ranking], ORDER)
    return "`CohereRerank`"
