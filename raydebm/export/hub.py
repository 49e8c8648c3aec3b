"""Pushing an exported folder to the Hugging Face hub, with ``huggingface_hub``.

The token is the environment's HF_TOKEN or the one that ``hf auth login`` stored; it is never written anywhere.
"""

import re
from pathlib import Path
from typing import Literal

from raydebm.errors import ConfigError, in_one_line

_NAME = re.compile(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+")

RepoType = Literal["model", "dataset"]


def check_can_push(repository: str) -> None:
    """Refuse, before anything is written, what cannot be pushed.

    Raises:
        ConfigError: the name is no ``user/name``, or there is no token.
    """
    from huggingface_hub import get_token

    if not _NAME.fullmatch(repository):
        raise ConfigError(
            f"cannot push to {repository!r}: a repository of the hub is called `owner/name`, of letters, digits, ._-"
        )
    if not get_token():
        raise ConfigError(
            f"pushing to {repository!r} needs a token of the hub: set HF_TOKEN, or run `hf auth login`; "
            "leave --push-to-hub out to write the folder alone"
        )


def push(folder: Path, repository: str, *, kind: RepoType, private: bool) -> str:
    """Make the repository if need be and upload the folder as one commit; returns the address.

    Raises:
        ConfigError: the hub refuses or cannot be reached; the folder stays.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    try:
        address = api.create_repo(repository, repo_type=kind, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository, repo_type=kind, folder_path=folder, commit_message="Export of a raydebm run"
        )
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ConfigError(
            f"the hub did not take {repository!r}: {in_one_line(str(error))}. The folder {str(folder)!r} stays; "
            f"push it with `hf upload {repository} {folder} --repo-type {kind}` when that is mended"
        ) from error
    return str(address)
