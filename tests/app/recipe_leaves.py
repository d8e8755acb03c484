"""Every plain key of a recipe by its path, with the variant's name where there are several."""

from collections.abc import Iterator

from docs.recipe_keys import nested, variant_of
from forethought.core.settings import Settings


def leaves(model: type[Settings], prefix: str = "") -> Iterator[str]:
    """The keys that hold no section, such as `rl.loss.clip_low` and `model.fresh.width`."""
    for key, field in model.model_fields.items():
        variants = list(nested(field.annotation))
        if not variants and key != "type":
            yield prefix + key
        for variant in variants:
            chosen = f"{variant_of(variant)}." if len(variants) > 1 else ""
            yield from leaves(variant, f"{prefix}{key}.{chosen}")
