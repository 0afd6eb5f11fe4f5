"""Words that a model with a closed vocabulary, such as the desk model, does not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class UnknownWords(UserWarning):
    """A prompt has words that the model does not know, or more words than it reads."""


class Vocabulary:
    """The words of a tokenizer with one token a word."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.unknown_id = tokenizer.token_to_id(json.loads(tokenizer.to_str())["model"]["unk_token"])

    @classmethod
    def of_file(cls, path: Path) -> Vocabulary | None:
        """The vocabulary in a tokenizer.json; None where words are made of pieces, so that all are known."""
        return cls._of_text(path.read_text(encoding="utf-8")) if path.is_file() else None

    @classmethod
    def of_tokenizer(cls, tokenizer: Any) -> Vocabulary | None:
        """The vocabulary of a tokenizer of transformers; None where words are made of pieces."""
        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if type(getattr(backend, "model", None)).__name__ != "WordLevel":
            return None
        return cls._of_text(backend.to_str())

    @classmethod
    def _of_text(cls, text: str) -> Vocabulary | None:
        from tokenizers import Tokenizer

        if json.loads(text)["model"].get("type") != "WordLevel":
            return None
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return cls(tokenizer)

    @property
    def words(self) -> list[str]:
        """All known words in alphabetical order."""
        return sorted(word for word in self.tokenizer.get_vocab() if not word.startswith("<"))

    def notes(self, prompt: str, max_tokens: int | None) -> list[str]:
        """What a prompt's author should know: the words that are not known, and how much of the prompt is read."""
        encoding = self.tokenizer.encode(prompt)
        unknown = [prompt[slice(*at)] for at, token in zip(encoding.offsets, encoding.ids) if token == self.unknown_id]
        notes = []
        if unknown:
            names = list(dict.fromkeys(unknown))
            more = f" and {len(names) - 12} more" if len(names) > 12 else ""
            notes.append(
                f"the model does not know the words {', '.join(names[:12])}{more}; its card lists those it does"
            )
        if max_tokens is not None and len(encoding.ids) > max_tokens:
            notes.append(
                f"the prompt has {len(encoding.ids) - 1} words, of which the model reads the first {max_tokens - 1}"
            )
        return notes
