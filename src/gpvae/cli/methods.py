"""The methods that commands offer, and how options become an imputer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpvae.imputers import registry
from gpvae.imputers.registry import METHODS

if TYPE_CHECKING:
    from gpvae.data.panel import Panel
    from gpvae.data.scaling import Kinds
    from gpvae.imputers.base import Imputer


DEFAULT = "gp-net"
NETWORK = "gp-vae"  # the default where options ask for what only it has: categories, --preset, --epochs
TIMED = [name for name, info in METHODS.items() if "minutes" in info.takes]
KNOWING = [name for name, info in METHODS.items() if "known" in info.takes]
WITH_KINDS = [name for name, info in METHODS.items() if info.kinds]
WITH_NUMBERS = [name for name, info in METHODS.items() if info.numbers]
WITH_CATEGORIES_ONLY = [name for name, info in METHODS.items() if info.categories and not info.kinds]


@dataclass(frozen=True)
class ImputerOptions:
    """Options that apply to every imputer a command builds."""

    kinds: "Kinds"
    conformal: bool
    epochs: int | None
    preset: str | None
    device: str
    seed: int
    minutes: float | None = None
    known: tuple[str, ...] = ()

    def build(self, method: str) -> "Imputer":
        from gpvae import Conformal, DataError, paper
        from gpvae.cli.printing import seconds_since_start, show_training
        from gpvae.data.limits import is_of_numbers

        if self.preset and method != NETWORK:
            raise DataError(f"--preset works only with {NETWORK}, not with {method}")
        settings: dict[str, Any] = {"device": self.device, "seed": self.seed, "verbose": show_training()}
        settings |= paper.PRESETS[self.preset] if self.preset else {}
        settings |= {"epochs": self.epochs} if self.epochs else {}
        if self.minutes:  # less what has passed since the command was called
            settings["minutes"] = max(0.01, self.minutes - seconds_since_start() / 60)
        settings |= {"known": self.known} if self.known else {}
        kinds = {name: kind for name, kind in self.kinds.items() if method not in WITH_NUMBERS or is_of_numbers(kind)}
        takes_kinds = method in (*WITH_KINDS, *WITH_NUMBERS, *WITH_CATEGORIES_ONLY)
        settings |= {"kinds": kinds} if kinds and takes_kinds else {}
        imputer = registry.method(method, **settings)
        return Conformal(imputer, seed=self.seed) if self.conformal else imputer

    def build_all(self, methods: Sequence[str]) -> "dict[str, Imputer]":
        """By name; a preset is that of the network."""
        without_preset = replace(self, preset=None)
        return {name: (self if name == NETWORK else without_preset).build(name) for name in methods}


def chosen(method: str | None, minutes: float | None, kinds: "Kinds", *special: object) -> str:
    """The method that was named; else the default, or the network where there are categories or special options."""
    method = method or (NETWORK if any((categorical_columns(kinds), *special)) else DEFAULT)
    _require_timed(minutes, method)
    _require_method_for(kinds, [method])
    return method


def _require_timed(minutes: float | None, *methods: str) -> None:
    from gpvae import DataError

    if minutes and not {*methods} & {*TIMED}:
        raise DataError(f"--minutes works only with {' and '.join(TIMED)}, not with {', '.join(methods)}")


def parse_methods(names: str | None, minutes: float | None, kinds: "Kinds", *special: object) -> list[str]:
    """Split NAME,NAME and check each name; without names those that are compared by default, with `chosen`."""
    from gpvae import DataError

    if names is None:
        return [chosen(None, minutes, kinds, *special) if name == DEFAULT else name for name in registry.COMPARED]
    methods = [name.strip() for name in names.split(",")]
    for name in methods:
        if name not in METHODS:
            raise DataError(f"--methods: {unknown_method(name)}")
    _require_timed(minutes, *methods)
    _require_method_for(kinds, methods)
    return methods


def parse_known(names: Sequence[str] | None, methods: Sequence[str]) -> tuple[str, ...]:
    """NAME,NAME → (NAME, NAME), for methods that can use it."""
    from gpvae import DataError

    known = tuple(name.strip() for name in ",".join(names or []).split(",") if name.strip())
    if known and not {*methods} & {*KNOWING}:
        raise DataError(f"--known works only with {' and '.join(KNOWING)}, not with {', '.join(methods)}")
    return known


def unknown_method(name: str) -> str:
    return f"unknown method {name!r}; choose from {', '.join(METHODS)}"


def parse_kinds(entries: Sequence[str] | None) -> "Kinds":
    """NAME=kind,NAME=low<mid<high → {NAME: kind, NAME: [low, mid, high]}"""
    return dict(_parse_kind(entry) for entry in ",".join(entries).split(",")) if entries else {}


def _parse_kind(entry: str) -> tuple[str, str | list[str]]:
    from gpvae import DataError

    name, equals, kind = (part.strip() for part in entry.rpartition("="))
    if not equals or not name or not kind:
        raise DataError(f"--kind: {entry!r} is not NAME=kind, such as visits=count or grade=low<mid<high")
    return name, [level.strip() for level in kind.split("<")] if "<" in kind else kind


def _require_method_for(kinds: "Kinds", methods: Sequence[str]) -> None:
    """Check that one of the methods can use them all."""
    from gpvae import DataError
    from gpvae.data.limits import is_of_numbers

    suitable = {*WITH_KINDS}
    suitable |= {*WITH_CATEGORIES_ONLY} if len(kinds) == len(categorical_columns(kinds)) else set()
    suitable |= {*WITH_NUMBERS} if all(map(is_of_numbers, kinds.values())) else set()
    if kinds and not {*methods} & suitable:
        also = f"for numbers also {', '.join(WITH_NUMBERS)}; for categories also {', '.join(WITH_CATEGORIES_ONLY)}"
        needed = f"{', '.join(WITH_KINDS)} ({also})"
        does = "fills only numbers" if methods[0] in WITH_NUMBERS else "treats every column as real numbers"
        raise DataError(f"--kind needs one of {needed}; {methods[0]} {does}")


def categorical_columns(kinds: "Kinds") -> tuple[str, ...]:
    from gpvae.data.scaling import class_columns

    return class_columns(kinds)


def require_causal(causal: bool, method: str, conformal: bool, fit_until: str | None) -> None:
    """Before training: check that --causal suits the method, and that it does not learn from the future."""
    from gpvae import DataError

    if not causal:
        return
    if method not in registry.CAUSAL or conformal:
        raise DataError(f"--causal: {f'{method} --conformal' if conformal else method} {registry.NOT_CAUSAL}")
    if fit_until is None:
        raise DataError(
            "--causal: a method that is fitted on the whole table has learned from later rows; fit it on the rows "
            "before a TIME by --fit-until TIME, or give a --model that was"
        )


def interval_level(interval: float | None, imputer: "Imputer", samples: int) -> float:
    """The level of the intervals to write, 0 for none."""
    from gpvae import DataError
    from gpvae.cli.printing import note
    from gpvae.imputers.draws import require_samples

    if not gives_intervals(imputer):
        advice = f"{imputer.name} gives single values without intervals; add --conformal to get intervals"
        if interval:
            raise DataError(advice)
        if interval is None:
            note(advice)
        return 0.0
    level = 0.9 if interval is None else interval
    if level and imputer.gives_distributions:
        require_samples((1 - level) / 2, samples)
    return level


def gives_intervals(imputer: "Imputer") -> bool:
    from gpvae import Conformal

    return imputer.gives_distributions or isinstance(imputer, Conformal)


def require_calibration_cells(imputer: "Imputer", panel: "Panel", level: float) -> None:
    """Before training: check that conformal intervals of this level can be calibrated on the panel."""
    from gpvae import Conformal

    if isinstance(imputer, Conformal):
        imputer.require_level(panel, level)
