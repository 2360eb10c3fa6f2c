"""The OpenAPI document."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from boardvoice.server.audio_encoder import MEDIA_TYPES
from boardvoice.server.speech_body import SpeechBody
from edge_runtime.voices.names import NAME_PATTERN

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}
_REASONS = {
    "400": "A field is wrong, or the text cannot be spoken.",
    "401": "The token is missing or wrong.",
    "403": "Asked by a foreign host name, without a token.",
    "404": "No such model or voice.",
    "408": "The body did not arrive in time.",
    "409": "A newer request of the same session took over; or the name of a voice is taken.",
    "411": "The length of the body is missing.",
    "413": "The body is too large.",
    "415": "The body is of another type.",
    "500": "The server failed.",
    "503": "Loading, or the queue is full; see Retry-After.",
    "507": "Not enough memory, or no room on the disk.",
}


def openapi_document() -> dict[str, Any]:
    """OpenAPI 3.1, as served at ``/openapi.json``."""
    schema = SpeechBody.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = schema.pop("$defs", {})
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    refusals = {
        status: {"description": text, "content": error} for status, text in _REASONS.items()
    }
    audio: dict[str, Any] = {kind: {} for kind in (*MEDIA_TYPES.values(), "text/event-stream")}
    speech = {
        "operationId": "createSpeech",
        "summary": "Speak a text",
        "parameters": [
            {
                "name": "X-Session-Id", "in": "header", "schema": {"type": "string"},
                "description": "As the field user, and before it.",
            }
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/SpeechBody"}}
            },
        },
        "responses": {
            "200": {
                "description": "Audio, as it is made.",
                "headers": {"X-Sample-Rate": {"schema": {"type": "integer"}}},
                "content": audio,
            },
            **refusals,
        },
    }  # fmt: skip
    gets = {
        "/v1/models": "Models", "/v1/voices": "Voices", "/health": "State",
        "/health/live": "Whether the process answers",
        "/health/ready": "Whether the voice is loaded", "/openapi.json": "This document",
    }  # fmt: skip
    some = {"application/json": {"schema": {"type": "object"}}}
    paths: dict[str, Any] = {
        path: {
            "get": {
                "summary": text,
                "responses": {
                    "200": {"description": text, "content": some},
                    **{status: refusals[status] for status in ("401", "403")},
                    "503": {"description": "Not ready yet.", "content": some},
                },
            }
        }
        for path, text in gets.items()
    }
    text_plain = {"200": {"description": "Prometheus' text", "content": {"text/plain": {}}}}
    paths["/metrics"] = {
        "get": {
            "summary": "Figures",
            "responses": {**text_plain, "401": refusals["401"], "403": refusals["403"]},
        }
    }
    paths["/v1/audio/speech"] = {"post": speech}
    add, remove = _voice_operations(refusals)
    paths["/v1/voices"]["post"] = add
    paths["/v1/voices/{name}"] = {"delete": remove}
    return {
        "openapi": "3.1.0",
        "info": {"title": "boardvoice", "version": version("boardvoice")},
        "paths": paths,
        "components": {
            "schemas": {"SpeechBody": schema, "Error": _ERROR, **parts},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _voice_operations(refusals: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Adding a voice, and removing one."""
    name = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
    voice = {"application/json": {"schema": {"type": "object"}}}
    fields = {
        "type": "object",
        "required": ["name", "file"],
        "additionalProperties": False,
        "properties": {
            "name": name,
            "file": {"type": "string", "format": "binary", "description": "WAV, FLAC, OGG or MP3."},
            "transcript": {
                "type": "string", "maxLength": 1000, "description": "What is said in the file.",
            },
        },
    }  # fmt: skip
    add = {
        "operationId": "addVoice",
        "summary": "Add a voice from a recording",
        "requestBody": {
            "required": True, "content": {"multipart/form-data": {"schema": fields}},
        },
        "responses": {
            "201": {"description": "The voice, which can be used from now on.", "content": voice},
            **{status: refusals[status] for status in refusals if status != "404"},
        },
    }  # fmt: skip
    remove = {
        "operationId": "removeVoice",
        "summary": "Remove a voice",
        "parameters": [{"name": "name", "in": "path", "required": True, "schema": name}],
        "responses": {
            "200": {"description": "It is gone.", "content": voice},
            **{status: refusals[status] for status in ("401", "403", "404", "409", "507")},
        },
    }
    return add, remove
