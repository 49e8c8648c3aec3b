"""Generation of candidates: one interface to endpoints, local models and recorded pools.

``build_generator`` imports only what a kind of generator needs: an endpoint does not load torch, and a recorded pool
does not load an HTTP client.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from raydebm.config import GeneratorConfig, OpenAIGenerator, TransformersGenerator, VllmGenerator
from raydebm.generators.endpoint.transports import Secret, key_of
from raydebm.generators.requests import Generator, collect
from raydebm.records import Problem

if TYPE_CHECKING:
    from raydebm.generators.endpoint.openai_api import EndpointAccess
    from raydebm.generators.journal import Journal

__all__ = ["Generator", "Secret", "build_generator", "check_keys", "collect"]


def build_generator(
    config: GeneratorConfig,
    *,
    journal: "Journal | None" = None,
    access: "EndpointAccess | None" = None,
    threads: int | None = None,
    problems: Iterable[Problem] = (),
) -> Generator:
    """Build the generator of a recipe's entry, with a journal for reusing and recording answers.

    ``access`` has an endpoint's limits and key, and ``threads`` limits a local model. A recorded pool finds
    ``problems`` by their own ids or by the source's.

    Raises:
        MissingKeyError: the endpoint's key is not in the environment.
        ResourceError: a vLLM server is needed, but its ``url`` is unknown.
        GenerationError: a local model cannot be loaded.
        TaskDataError: a recorded pool cannot be read.
        UnknownNameError: the model is not in the recorded pool.
    """
    generator: Generator
    if isinstance(config, OpenAIGenerator | VllmGenerator):
        from raydebm.generators.endpoint.openai_api import OpenAIApiGenerator
        from raydebm.generators.endpoint.vllm import endpoint_of

        endpoint = endpoint_of(config) if isinstance(config, VllmGenerator) else config
        generator = OpenAIApiGenerator(endpoint, access)
    elif isinstance(config, TransformersGenerator):
        from raydebm.generators.transformers_local import LocalGenerator

        generator = LocalGenerator(config, threads=threads)
    else:
        from raydebm.generators.recorded import PoolGenerator

        return PoolGenerator(config, problems=problems)  # recorded answers need no journal
    if journal is None:
        return generator
    from raydebm.generators.journal import JournaledGenerator

    return JournaledGenerator(generator, journal)


def check_keys(configs: Sequence[GeneratorConfig]) -> dict[str, Secret]:
    """The keys of all endpoints by generator name. Call it early to find missing keys before anything starts.

    Raises:
        MissingKeyError: an endpoint's key is not in the environment.
    """
    return {config.name: key_of(config) for config in configs if isinstance(config, OpenAIGenerator)}
