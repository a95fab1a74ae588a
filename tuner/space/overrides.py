"""Settings in a model's own code, and their effect on those of its launch."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.record.workload import ModelFacts, OwnSetting

_WORTH_SAYING = 1.05
"""From which ratio of two call times on one of them is called faster; each is the best of a few."""


def overridden(settings: Iterable[OwnSetting]) -> dict[str, str]:
    """Return the knobs that nothing but the model's code can set, each with the reason."""
    return {
        each.knob: f"overridden by {each.where}: {each.what}" for each in settings if each.holds
    }


def warnings_of(facts: ModelFacts) -> list[str]:
    """Write for each such setting its place, its effect, and what removing it may gain."""
    return [_told(each) for each in facts.own_settings]


def _told(setting: OwnSetting) -> str:
    if not setting.holds:
        return (
            f"{setting.where} sets {setting.what}: where it runs before the framework is imported, "
            "it overrides what the launch sets; here it ran after. Remove the line, or the launch "
            "settings found here will not be in force in your program"
        )
    text = (
        f"{setting.where} calls {setting.what}, which overrides {setting.knob}: no value of it and "
        "no guide's can be in force. Remove the line and tune again"
    )
    if not setting.in_force:
        return f"{text}. What is measured here, the default too, is without it"
    if not setting.call_s or not setting.call_without_s:
        return text
    ratio = setting.call_s / setting.call_without_s
    gain = f"{ratio:.1f}x as fast" if ratio >= _WORTH_SAYING else "no faster"
    return (
        f"{text}: with {setting.instead}, as without it, a call was {gain} in a first trial "
        f"({setting.call_without_s * 1000:.3g} ms in the place of {setting.call_s * 1000:.3g} ms)"
    )
