"""docs/boards.md and the JSON Schema are those of the profiles as they are."""

from __future__ import annotations

import json
import runpy
from importlib.resources import files
from pathlib import Path

from device_profiles.json_schema import SCHEMA_FILE, profile_json_schema
from device_profiles.layers import ProfileStore
from device_profiles.validation import validated

ROOT = Path(__file__).parents[2]


def test_the_page_of_boards_is_current() -> None:
    script = runpy.run_path(str(ROOT / "docs/make_boards.py"))
    made = script["boards_page"]()
    assert (ROOT / "docs/boards.md").read_text("utf-8") == made, "run python docs/make_boards.py"


def test_the_committed_schema_is_current() -> None:
    committed = (files("device_profiles") / SCHEMA_FILE).read_text(encoding="utf-8")
    assert committed == profile_json_schema(), (
        f"run boardvoice profiles schema > device_profiles/{SCHEMA_FILE}"
    )


def test_the_schema_knows_every_key_that_the_shipped_files_use() -> None:
    schema = json.loads(profile_json_schema())
    store = ProfileStore.shipped()
    for file in store.candidates():
        assert set(file.data) <= set(schema["properties"])


def test_only_what_was_run_is_verified() -> None:
    store = ProfileStore.shipped()
    profiles = [validated(store.layers(file)) for file in store.candidates()]
    assert [profile.name for profile in profiles if profile.verified] == ["x86-vnni"]


def test_every_profile_has_figures_to_plan_with() -> None:
    store = ProfileStore.shipped()
    for file in store.candidates():
        figures = validated(store.layers(file)).figures
        assert figures.memory_gb_s, file.name
        assert figures.cpu_f32_gflops, file.name
        assert figures.cpu_int8_gops, file.name
