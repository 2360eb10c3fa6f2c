"""What of a profile's wishes this version does not fulfil, and what it does instead."""

from __future__ import annotations

from device_profiles.schema import Profile


def unfulfilled(profile: Profile) -> tuple[str, ...]:
    """What the profile asks for and does not get, with the reason, for log and result."""
    wanted = [provider.name for provider in profile.providers if provider.name != "cpu"]
    if wanted:
        return (
            f"Profile {profile.name} asks for {' and '.join(wanted)}; this version runs the CPU "
            "provider only, so the CPU does all of it.",
        )
    if profile.flow.place != "cpu":
        return (
            f"Profile {profile.name} asks for the flow on {profile.flow.place}; this version has "
            "no such back end, so the CPU does all of it.",
        )
    return ()
