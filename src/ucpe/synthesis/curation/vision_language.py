"""The paper's filter by a vision-language model: six flags and what kind of place it is, as strict JSON.

Runs if an OpenAI-compatible endpoint is given. An invalid answer is sent back with what is wrong with it. If that does
not help, the answer is recorded as it came, with the reason why it is invalid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from ucpe.pages.drawings import data_uri
from ucpe.synthesis.captions import Endpoint
from ucpe.synthesis.curation.segmentation import thumbnail
from ucpe.synthesis.curation.steps import Row, SourceClip, Step

FLAGS = {
    "non_ERP_format": "The video is **not in ERP (Equirectangular Projection)** panoramic format. For example, if the "
    "video looks like a flat perspective, fisheye, cube-map, or any projection other than ERP, set this to true.",
    "has_subtitle_or_watermark": "The video contains **text overlays, subtitles, logos, or watermarks**. Look "
    "carefully for visible text at the bottom, center, or corners of the video. If such elements are present and not "
    "part of the real scene, set this to true.",
    "edge_missing": "The top or bottom edges of the ERP panorama are **cut off, blacked out, cropped, or covered by "
    "logos/watermarks**, so the full 360 vertical coverage is missing or obstructed. If you cannot clearly see the "
    "poles (sky/ground) or if the edges are hidden by overlays, set this to true.",
    "has_overlay": "The frame contains **artificial overlays**, such as embedded UI elements, pop-up graphics, "
    "stickers, video-in-video inserts, menus, or other synthetic elements that are not part of the natural scene. If "
    "you see signs of AR/VR interface, streaming UI, or added images, set this to true.",
    "low_quality": "The video is of **poor visual quality**, such as being blurry, noisy, heavily pixelated, very low "
    "resolution, or distorted in a way that prevents recognizing the scene. If the content is hard to interpret due to "
    "quality issues, set this to true.",
    "unnatural_content": "The video contains **cartoons, animations, CGI, synthetic 3D renderings, or game engine "
    "graphics** rather than real-world panoramic footage. If the content is not realistic, set this to true.",
}
"""The paper's six flags, with what it tells the model about each."""

CATEGORIES = tuple(
    """Restaurant, Coffee-Shop, Bars-and-Pubs, Residential-area, Hotels-Motels, Vaccation-Rentals, Hospitals-Clinics,
    Pharmacies, Dentists, School-Universities, Library, Supermarkets, Shopping-Malls, Clothing-Stores, Shoe-Stores,
    Bookstores, Flowerstore, Furniture-Stores, Electorical-Store, Pet-Store, Toy-Shop, Airports, Train-Stations,
    Bus-Stops, Gas-Station, Car-Rental-Agencies, Theaters, Concert-Halls, Sports-Stadiums, Parks-and-Recreation-Areas,
    Museums, Art-Galleries, Zoos-Aquariums, Botanical-Gardens, Landmarks, Cultural-Centers, Post-Offices,
    Police-Stations, Courthouses, CityHalls, Banks-ATMs, Events-Conferences-halls, Beaches, Hiking-Trails, Campgrounds,
    Lakes, Mountains, Forest-Mountains, Farms, Street-View, Square, Business-Centers, Tech-Companies,
    Co-working-Spaces, Gyms-and-Fitness-Centers, Sports-Clubs, Swimming-Pools, Tennis-Courts, Auto-Repair-Shops,
    Car-Washes, Parking-Lots, Churches, Mosques, Temples, Graveyards""".replace("\n    ", " ").split(", ")
)
"""The paper's 65 kinds of places, as it spells them."""

EXAMPLE = json.dumps({"filter": dict.fromkeys(FLAGS, False), "poi_category": ["Mountains"]}, indent=2)

PROMPT = f"""You are a video understanding assistant specialized in analyzing panoramic ERP-format videos.
Given one frame of a panoramic video, your tasks are:

1. **Filtering**: Identify if the video should be filtered out.
Output boolean flags for the following conditions (true if the issue exists, false otherwise):

{chr(10).join(f"- {name}: {text}{chr(10)}" for name, text in FLAGS.items())}
2. **POI Categorization**: From the provided list of categories, select **one or more most relevant** labels that \
best describe the scene.
   Only use the given categories, do not invent new ones.

---

**poi_category list (choose only from below):**

{", ".join(CATEGORIES)}.

---

**Output strictly in JSON format** as follows:

```json
{EXAMPLE}
```
"""
"""The paper's prompt, word for word."""


@dataclass(frozen=True)
class VisionLanguageFilter(Endpoint, Step):
    """Asks about the middle frame of each clip; drops clips with a flag, and sorts the others by place."""

    name: ClassVar[str] = "vision-language"
    columns: ClassVar[Mapping[str, pa.DataType]] = {
        "flags": pa.list_(pa.string()),
        "categories": pa.list_(pa.string()),
        "answer": pa.string(),
        "invalid": pa.string(),
    }
    thresholds: ClassVar[tuple[str, ...]] = ("dropping_flags", "drop_invalid")

    url: str = ""
    """Base address of an OpenAI-compatible endpoint, e.g. http://localhost:8000/v1; without, the step is left out."""
    model: str = "Qwen/Qwen2.5-VL-7B-Instruct"
    height: int = 512
    """Height in pixels of the frame sent."""
    attempts: int = 3
    """Maximum number of times that the model is asked, until its answer is valid."""
    dropping_flags: tuple[str, ...] = tuple(FLAGS)
    """Flags for which a clip is dropped."""
    drop_invalid: bool = True
    """Drop clips without a valid answer."""

    def __post_init__(self) -> None:
        if self.url:
            super().__post_init__()
        if unknown := sorted(set(self.dropping_flags) - set(FLAGS)):
            raise ValueError(f"no flag {', '.join(unknown)}; there are {', '.join(FLAGS)}")

    def wanted(self) -> bool:
        """Whether an endpoint is given."""
        return bool(self.url)

    def run(self, clip: SourceClip) -> list[Row]:
        """Flags, categories, and the answer as it was given."""
        picture = data_uri(thumbnail(clip.frames(1)[0], self.height))
        image = {"type": "image_url", "image_url": {"url": picture}}
        messages: list[Any] = [{"role": "user", "content": [image, {"type": "text", "text": PROMPT}]}]
        answer = problem = ""
        for _ in range(self.attempts):
            body = {"model": self.model, "max_tokens": 512, "temperature": 0, "messages": messages}
            answer = self.ask(body, clip.row["id"])
            try:
                flags, categories = parse_answer(answer)
                return [{"flags": flags, "categories": categories, "answer": answer, "invalid": ""}]
            except ValueError as error:
                problem = str(error)
            again = f"That is not valid: {problem}. Answer with the JSON object alone, exactly in the given format."
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": again}]
        return [{"flags": [], "categories": [], "answer": answer, "invalid": problem}]

    def verdict(self, row: Row) -> str:
        """Dropped for the first flag that is set, or without a valid answer."""
        if row["invalid"]:
            return "no valid answer from the vision-language model" if self.drop_invalid else ""
        return next((f"flagged: {flag}" for flag in row["flags"] if flag in self.dropping_flags), "")


def parse_answer(text: str) -> tuple[list[str], list[str]]:
    """The flags that are set and the categories, from an answer; raises ValueError that says what is wrong with it."""
    fenced = re.fullmatch(r"\s*```(?:json)?(.*)```\s*", text, re.DOTALL)
    try:
        content = json.loads(fenced.group(1) if fenced else text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(content, dict) or set(content) != {"filter", "poi_category"}:
        raise ValueError("must be an object with `filter` and `poi_category` and nothing else")
    flags, categories = content["filter"], content["poi_category"]
    if (
        not isinstance(flags, dict)
        or set(flags) != set(FLAGS)
        or not all(isinstance(flag, bool) for flag in flags.values())
    ):
        raise ValueError(f"`filter` must hold exactly {', '.join(FLAGS)}, each true or false")
    if not isinstance(categories, list) or not categories or not all(isinstance(name, str) for name in categories):
        raise ValueError("`poi_category` must be a list of one or more names")
    if unknown := [name for name in categories if name not in CATEGORIES]:
        raise ValueError(f"`poi_category` has {unknown[0]!r}, which is not in the list")
    return [name for name in FLAGS if flags[name]], list(dict.fromkeys(categories))
