from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from ucpe.training.base_models import build_denoiser, sized_transformer
from ucpe.training.recipes import RECIPES, Recipe
from ucpe.training.runs import find_recipe

TRAINED = {
    "ucpe": 35_637_120,
    "ucpe-relative": 35_452_800,
    "ucpe-half": 141_857_280,
    "ucpe-quarter": 71_043_840,
    "ucpe-twelfth": 23_834_880,
    "ucpe-pre": 35_637_120,
    "ucpe-post": 35_637_120,
    "prope": 35_637_120,
    "gta": 35_637_120,
}
"""Trainable parameters of the rows of Table 1, from the model's sizes."""


def on_meta(recipe):
    with torch.device("meta"):
        return build_denoiser(recipe, sized_transformer(recipe), expand_timesteps=recipe.model == "desk")


@pytest.mark.parametrize("name", TRAINED)
def test_full_size_recipes_train_as_many_parameters_as_the_paper_says(name):
    assert sum(value.numel() for value in on_meta(RECIPES[name]).trained_parameters().values()) == TRAINED[name]


def test_baselines_tune_what_their_papers_tune():
    counts = {
        name: sum(value.numel() for value in on_meta(RECIPES[name]).trained_parameters().values()) / 1e6
        for name in ("recammaster", "cameractrl")
    }
    assert counts["recammaster"] == pytest.approx(354, rel=0.01)
    assert counts["cameractrl"] == pytest.approx(1500, rel=0.05)


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("desk-")])
def test_desk_recipes_build_and_train_something(name):
    recipe = RECIPES[name]
    model = on_meta(recipe)
    everything = recipe.train_base or recipe.adapter == "cameractrl"
    frozen = [name for name, value in model.named_parameters() if not value.requires_grad]
    assert model.trained_parameters()
    assert bool(frozen) != everything


def test_every_row_exists_at_both_sizes_and_differs_in_fields_only():
    rows = [name for name in RECIPES if not name.startswith("desk-")]
    assert len(rows) == 18
    for name in rows:
        full, small = RECIPES[name], RECIPES[f"desk-{name}"]
        for field in ("adapter", "orientation", "encoding", "placement", "first_frame", "drop_text", "train_base"):
            assert getattr(full, field) == getattr(small, field)
    assert len({str({**asdict(recipe), "name": ""}) for recipe in RECIPES.values()}) == len(RECIPES)


def test_image_to_video_recipe_is_the_14b_model_with_relative_rays():
    model = on_meta(RECIPES["ucpe-i2v"])
    assert model.concatenates_image
    assert model.transformer.config.image_dim == 1280
    assert sum(value.numel() for value in model.transformer.parameters()) / 1e9 == pytest.approx(16.4, abs=0.1)
    assert not model.adapter.config["orientation"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"first_frame": 1.5}, "first_frame"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"adapter": "none"}, "nothing to train"),
        ({"train_base": True}, "cache_text"),
    ],
)
def test_impossible_recipes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(Recipe("mine"), **changes)


def test_a_recipe_may_come_from_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import replace\nfrom ucpe.training.recipes import RECIPES\n"
        "def recipe():\n    return replace(RECIPES['ucpe'], name='mine', compression=4)\n"
    )
    assert find_recipe(str(path)).compression == 4
    path.write_text("recipe = 3\n")
    with pytest.raises(ValueError, match="must define a function"):
        find_recipe(str(path))
    with pytest.raises(ValueError, match="there are ucpe"):
        find_recipe("upce")


@pytest.mark.parametrize("path", sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.py")), ids=str)
def test_recipe_files_to_copy_are_recipes(path):
    recipe = find_recipe(str(path))
    assert recipe.name not in RECIPES
    assert f"recipes/{path.name}" in path.read_text()


def test_accelerate_reads_the_launch_files():
    from accelerate.commands.config.config_args import load_config_from_file

    folder = Path(__file__).resolve().parents[2] / "recipes"
    for path in sorted(folder.glob("*.yaml")):
        assert load_config_from_file(str(path)).num_processes == 8
    blocks = load_config_from_file(str(folder / "fsdp.yaml")).fsdp_config["fsdp_transformer_layer_cls_to_wrap"]
    with torch.device("meta"):
        block = sized_transformer(RECIPES["desk-ucpe"]).blocks[0]
    assert type(block).__name__ == blocks
