"""The contestants of the adapter benchmark: the rows of the paper's Table 1 at desk size, and the base they share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ucpe.evaluation.report.quoted import ABLATION, ABSOLUTE, RELATIVE, QuotedRow, quoted_rows
from ucpe.training.recipes import RECIPES, Recipe, desk_model

NO_CAMERA = "no camera control"
"""Group of the base itself, which the paper does not list."""

CHECKPOINT_EVERY = 50
"""Steps between checkpoints: what a killed training repeats at most."""

BATCH = 8
"""Clips of a step."""

LEARNING_RATE = 2e-3
"""Learning rate of every contestant, unless each is to have its recipe's own."""

REFERENCE, RELATIVE_REFERENCE = "ucpe", "ucpe-relative"


@dataclass(frozen=True)
class Contestant:
    """A row of the table. It is trained by `ucpe train desk-NAME` with a few fields changed."""

    name: str
    title: str
    group: str
    quoted: str | None = None
    """Method of the paper's row in the same group, where there is one."""
    recipe: str | None = None
    """Recipe at desk size; None for the base itself, which is not trained any further."""
    changes: tuple[tuple[str, Any], ...] = ()
    ablation: bool = False
    """A variant of UCPE's branch."""

    @property
    def reference(self) -> str | None:
        """Contestant that this one is compared to: UCPE of its own group, and without orientation UCPE with it."""
        if self.name == REFERENCE:
            return None
        return RELATIVE_REFERENCE if self.group == RELATIVE and self.name != RELATIVE_REFERENCE else REFERENCE

    @property
    def unique_title(self) -> str:
        """Title, with what tells it from the same method in another group."""
        return f"{self.title}, relative" if self.name.endswith("-relative") else self.title

    def quotation(self) -> QuotedRow | None:
        """The paper's own row."""
        rows = [row for row in quoted_rows("1") if (row.group, row.method) == (self.group, self.quoted)]
        return rows[0] if rows else None


def _row(name: str, title: str, group: str, quoted: str, **options: Any) -> Contestant:
    return Contestant(name, title, group, quoted, f"desk-{name}", **options)


_EIGHTH = (("compression", 8), ("heads", None), ("head_dim", None))

CONTESTANTS: dict[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        _row("ucpe", "UCPE", ABSOLUTE, "UCPE"),
        Contestant("none", "Base alone", NO_CAMERA),
        _row("recammaster", "ReCamMaster", ABSOLUTE, "ReCamMaster"),
        _row("cameractrl", "Wan CameraCtrl", ABSOLUTE, "Wan CameraCtrl"),
        _row("prope", "PRoPE", ABLATION, "PRoPE"),
        _row("gta", "GTA", ABLATION, "GTA"),
        Contestant("sightline", "Sightline", ABSOLUTE, recipe="desk-sightline"),
        _row("ucpe-relative", "UCPE", RELATIVE, "UCPE"),
        _row("recammaster-relative", "ReCamMaster", RELATIVE, "ReCamMaster"),
        _row("cameractrl-relative", "Wan CameraCtrl", RELATIVE, "Wan CameraCtrl"),
        _row("ucpe-pre", "Pre-Attn", ABLATION, "Pre-Attn", ablation=True),
        _row("ucpe-post", "Post-Attn", ABLATION, "Post-Attn", ablation=True),
        _row("ucpe-half", "1/2-dim (32x3)", ABLATION, "1/2-dim (128x6)", ablation=True),
        _row("ucpe-quarter", "1/4-dim (48x1)", ABLATION, "1/4-dim (128x3)", ablation=True),
        Contestant(
            "ucpe-eighth", "1/8-dim (24x1)", ABLATION, "1/8-dim (192x1)", "desk-ucpe", changes=_EIGHTH, ablation=True
        ),
        _row("ucpe-twelfth", "1/12-dim (16x1)", ABLATION, "1/12-dim (128x1)", ablation=True),
    )
}
"""Every contestant by name, in the order in which they are run: what a short budget should not miss comes first."""

MAIN = ("ucpe", "none", "recammaster", "cameractrl", "prope")
"""Contestants unless others are asked for: few, so that a short run has steps enough to steer."""

GROUPS = (NO_CAMERA, RELATIVE, ABSOLUTE, ABLATION)
"""Groups in the order of the table."""


def find_contestants(names: tuple[str, ...]) -> list[Contestant]:
    """Contestants by name, each once, in the order in which they are run."""
    unknown = [name for name in names if name not in CONTESTANTS]
    if unknown:
        raise ValueError(f"no contestant '{unknown[0]}'; there are {', '.join(CONTESTANTS)}")
    if not names:
        raise ValueError("no contestants")
    return [contestant for name, contestant in CONTESTANTS.items() if name in names]


def contestant_recipe(
    contestant: Contestant, steps: int, learning_rate: float | None = LEARNING_RATE, **changes: Any
) -> Recipe:
    """How a contestant is trained: its recipe at desk size, with what all must have in common.

    Without a learning rate, the recipe's own is kept.
    First frames are given as often, and noise levels weighted, as when the base was trained. The base alone has the
    recipe of UCPE, none of whose steps are taken.
    """
    recipe = RECIPES[contestant.recipe or "desk-ucpe"]
    fields: dict[str, Any] = {
        **dict(contestant.changes),
        "name": contestant.name,
        "steps": steps,
        "learning_rate": recipe.learning_rate if learning_rate is None else learning_rate,
        "warmup": min(recipe.warmup, steps // 5),
        "first_frame": desk_model().first_frame,
        "objective": desk_model().objective,
        "batch": BATCH,
        "micro_batch": BATCH,
        "validate_every": steps,
        "checkpoint_every": CHECKPOINT_EVERY,
        "samples": 0,
        **changes,
    }
    return replace(recipe, **fields)
