"""A recipe on embedded models that runs in seconds."""

from raydebm.config import parse_recipe


def recipe_of(run_dir, **changes):
    tree = {
        "name": "tiny",
        "seed": 3,
        "run_dir": str(run_dir),
        "task": {
            "name": "knights_knaves",
            "train": {"split": "train", "source": "generate:2-3", "limit": 16},
            "test": {"split": "test", "source": "generate:2-3", "limit": 6},
        },
        "generators": [
            {"kind": "transformers", "name": "bo", "model": "embedded:kk-bo", "batch_size": 64},
            {"kind": "transformers", "name": "dee", "model": "embedded:kk-dee", "batch_size": 64},
        ],
        "generation": {"num_samples": 3, "max_tokens": 128},
        "pairs": {"validation_frac": 0.4},
        "scorer": {
            "backbone": "embedded:encoder-mini",
            "max_length": 512,
            "adapters": [
                {"name": "a0", "rank": 2, "alpha": 4, "targets": ["Wqkv"]},
                {"name": "a1", "rank": 2, "alpha": 4, "targets": ["Wqkv", "Wi"]},
            ],
        },
        "training": {"max_epochs": 1, "learning_rate": 1e-3},
        "decision": {"num_regenerate": 2, "lambdas": [0.0, 1.0]},
        # A process that had a GPU ends with its task and is not used again; and of eight CPUs five leave room for one
        # process that trains: most of the time of so small a training is starting processes.
        "ray": {"gpus_per_adapter": 0, "cpus_per_adapter": 5},
    }
    return parse_recipe({**tree, **changes})
