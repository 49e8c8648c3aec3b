"""Where the replicas of the generators find a run's generators, and how they recognise them."""

from collections.abc import Sequence
from dataclasses import dataclass

from raydebm.config import GeneratorConfig, Recipe
from raydebm.errors import ConfigError
from raydebm.identity import content_id
from raydebm.run.directory import RunDir


@dataclass(frozen=True, slots=True)
class RunSource:
    """The served generators of one run: small, and sent with every call."""

    run_dir: str
    """A path that every replica's node can read, or a filesystem URL."""
    recipe: str
    """Content id of the recipe, so that a rewritten one is not taken for it."""
    generators: tuple[str, ...]

    @classmethod
    def of(cls, run_dir: str, recipe: Recipe, generators: Sequence[str]) -> "RunSource":
        """The source of a run whose recipe has been read."""
        return cls(run_dir, _fingerprint(recipe), tuple(generators))

    def configs(self) -> tuple[GeneratorConfig, ...]:
        """The generators' sections, read from the run directory.

        Raises:
            ConfigError: it has no recipe, or another one by now.
        """
        recipe = RunDir(self.run_dir).recipe()
        if (fingerprint := _fingerprint(recipe)) != self.recipe:
            raise ConfigError(
                f"recipe.json of {self.run_dir} is version {fingerprint} by now, but version {self.recipe} is served; "
                "a new `revision` in the ingress deployment's user_config takes the new one"
            )
        return tuple(config for config in recipe.generators if config.name in self.generators)


def _fingerprint(recipe: Recipe) -> str:
    return content_id(recipe.model_dump(mode="json", by_alias=True), length=12)
