"""An OpenAI-compatible endpoint that answers puzzles in a storm: right or wrong by plan, and with faults on the way."""

import json
from collections import Counter

from aiohttp import web
from misbehaving_server import BEHAVIOURS, completion
from puzzle_answers import number_of, solution_of, with_one_wrong
from threaded_server import ThreadedServer

FAULTS = ("ok",) * 6 + ("429", "503", "reset", "cut off", "truncated")
"""The first reply to a request; every later one is an answer."""
REFUSED_SEED_SHARE = 12
"""One in so many requests of the model ``fair`` is refused for good."""


class PuzzleServer(ThreadedServer):
    """Model ``fair`` is right once of three times, ``poor`` once of six; both are right once they have had feedback."""

    def __init__(self, solutions: dict[str, dict[str, str]]) -> None:
        """
        Args:
            solutions: everybody's role, by the puzzle's text.
        """
        super().__init__()
        self._solutions = solutions
        self.attempts: Counter[str] = Counter()
        self.refused: set[str] = set()
        self.answered: Counter[str] = Counter()

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        said = [message["content"] for message in body["messages"]]
        key = json.dumps([body["model"], said, body.get("seed"), body.get("temperature")])
        self.attempts[key] += 1
        number = number_of(key)
        if body["model"] == "fair" and len(said) < 4 and number % REFUSED_SEED_SHARE == 0:
            self.refused.add(key)
            return await BEHAVIOURS["400"](request, body, "")
        fault = FAULTS[number // 7 % len(FAULTS)]
        if fault != "ok" and self.attempts[key] == 1:
            return await BEHAVIOURS[fault](request, body, "")
        self.answered[key] += 1
        return web.json_response(completion(self._text(body["model"], said, number)))

    def _text(self, model: str, said: list[str], number: int) -> str:
        roles = solution_of(said, self._solutions)
        was_told = any("Your answer breaks" in part for part in said)
        if not was_told and number // 1_000 % 6 >= {"fair": 2, "poor": 1}[model]:
            roles = with_one_wrong(roles, number // 3_000)
        return f"By trying every case ({number % 5}): {json.dumps(roles)}"
