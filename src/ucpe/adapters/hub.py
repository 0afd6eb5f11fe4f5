"""Repositories of the Hugging Face hub, as folders on this disk."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any


@cache
def hub_folder(name: str, files: tuple[str, ...] | None = None, **options: Any) -> Path:
    """Folder with the files of a hub repository, all or those that match a pattern in `files`.

    They are downloaded if needed; without a network, an earlier download is used. `options` are of
    huggingface_hub's `snapshot_download`: `token`, `revision`, `local_files_only`, `cache_dir`.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(snapshot_download(name, allow_patterns=None if files is None else list(files), **options))
    except HFValidationError:
        raise OSError(f"there is no folder {name!r}, and it is no hub id either") from None
    except (HfHubHTTPError, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise OSError(
            f"cannot get {name} from the hub ({lines[0].removeprefix('Got: ')}): download it where there is a network, "
            f"with `hf download {name} --local-dir FOLDER`, and name that folder instead"
        ) from None
