"""JSON Schema of profile files, for editors and for programs that write them."""

from __future__ import annotations

import json
from typing import Any

from device_profiles.schema import Profile

SCHEMA_FILE = "profile.schema.json"


def profile_json_schema() -> str:
    """The schema as text, the same for the same models."""
    schema: dict[str, Any] = Profile.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "boardvoice device profile"
    # What a file says before anything is inherited: "extends" leads to the rest.
    schema["properties"]["extends"] = {
        "title": "Extends",
        "description": "Name of the profile that this one inherits from.",
        "type": "string",
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
