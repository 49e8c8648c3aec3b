"""Cohere's client: rerank. Its chat has a shape of its own, which the service does not speak."""

import cohere
from known import DOCUMENTS, MODEL, ORDER, PUZZLE, URL, same

USES = ("rerank",)


def rerank():
    for kind in (cohere.Client, cohere.ClientV2):
        ranking = kind(api_key="x", base_url=URL).rerank(model=MODEL, query=PUZZLE, documents=DOCUMENTS, top_n=2)
        same([one.index for one in ranking.results], ORDER)
    return "`Client`, `ClientV2`"
