"""Durations and periods in words."""

import pytest

from gpvae.data.durations import DAY, in_words, rhythm


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (37 * 3600, "37 hours"),
        (DAY, "24 hours"),
        (2 * DAY, "2 days"),
        (7.083 * DAY, "7.1 days"),
        (12.42 * 3600, "12.4 hours"),
        (400 * DAY, "400 days"),
        (10 * 365.2425 * DAY, "10 years"),
        (5400, "90 minutes"),
        (1, "1 second"),
        (0.25, "0.25 seconds"),
    ],
)
def test_durations_of_dates(seconds: float, words: str) -> None:
    assert in_words(seconds, "datetime", 3600) == words


@pytest.mark.parametrize(("steps", "words"), [(37, "37 steps"), (1, "1 step"), (12_345, "12,345 steps")])
def test_durations_of_numbers_are_in_steps(steps: float, words: str) -> None:
    assert in_words(0.5 * steps, "number", 0.5) == words


def test_periods_near_those_of_the_calendar_have_names() -> None:
    found = [rhythm(days * DAY, "datetime") for days in (1 / 24, 0.99, 7.08, 30.3, 366, 1.04, 2)]
    assert found == ["hourly", "daily", "weekly", "monthly", "yearly", None, None]
    assert rhythm(24.84 / 24 * DAY, "datetime") is None  # the moon's day
    assert rhythm(DAY, "number") is None
