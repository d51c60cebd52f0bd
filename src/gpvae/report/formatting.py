"""Numbers as text."""


def percent(share: float | None, digits: int = 0) -> str:
    return "–" if share is None else f"{100 * share:.{digits}f} %"


def decimal(number: float | None, spec: str = ".3f") -> str:
    return "–" if number is None else format(number, spec)


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
