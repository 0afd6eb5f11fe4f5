"""What loading a model prints."""

from __future__ import annotations


def load_quietly() -> None:
    """Keep diffusers and transformers from printing bars and notices while they load; for programs, not libraries."""
    import diffusers.utils.logging
    import transformers.utils.logging

    for library in (diffusers.utils.logging, transformers.utils.logging):
        library.disable_progress_bar()
        library.set_verbosity_error()
