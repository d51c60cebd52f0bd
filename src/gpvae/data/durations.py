"""Durations in words: 37 hours, a daily rhythm."""

from gpvae.data.times import Clock

DAY = 86_400.0
RHYTHMS = {
    "hourly": DAY / 24,
    "daily": DAY,
    "weekly": 7 * DAY,
    "monthly": 365.2425 / 12 * DAY,
    "yearly": 365.2425 * DAY,
}
UNITS = {"year": 365.2425 * DAY, "day": DAY, "hour": DAY / 24, "minute": 60.0, "second": 1.0}
NEAR = 0.02  # relative difference to a rhythm that a period found in data may have


def in_words(duration: float, clock: Clock, step: float) -> str:
    """Give a duration in the units of a panel's times: of dates "37 hours"; of numbers "37 steps" of length `step`."""
    if clock == "number":
        return _counted(duration / step, "step")
    unit = next((name for name, seconds in UNITS.items() if duration >= 1.995 * seconds), None)
    if unit is None:
        return _counted(duration, "second")
    return _counted(duration / UNITS[unit], unit)


def rhythm(period: float, clock: Clock) -> str | None:
    """Give the name of a period of dates, such as "daily", if it has one."""
    if clock == "number":
        return None
    return next((name for name, seconds in RHYTHMS.items() if abs(period / seconds - 1) < NEAR), None)


def _counted(number: float, unit: str) -> str:
    text = f"{number:,.0f}" if number >= 100 else f"{number:.{2 if number < 10 else 3}g}"
    return f"{text} {unit}" if text == "1" else f"{text} {unit}s"
