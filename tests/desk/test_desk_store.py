import pytest
from recipes.desk.store import keep_words

from ucpe.desk.model import make_tokenizer


def test_a_tokenizer_forgets_words_and_keeps_the_numbers_of_the_others(tmp_path):
    from transformers import PreTrainedTokenizerFast

    whole = make_tokenizer(("a", "chair", "on", "red", "sand", "tower"))
    whole.save_pretrained(tmp_path)
    keep_words(tmp_path / "tokenizer.json", {"a", "red", "tower", "on"})
    less = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert less("a red tower on")["input_ids"] == whole("a red tower on")["input_ids"]
    assert less("a red chair")["input_ids"][2] == less.unk_token_id
    with pytest.raises(KeyError):
        less.get_vocab()["sand"]
