"""How training went."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpvae.imputers.imputation import Imputation
from gpvae.report.capabilities import keeps_last_epoch, method_of
from gpvae.report.numbers import rounded

MIN_EPOCHS = 10  # with fewer scores, there is no telling whether more epochs would help

Losses = Mapping[str, Sequence[float | None]]


def summarise(imputation: Imputation) -> dict[str, Any] | None:
    """The losses of each epoch; None if nothing was trained."""
    method = method_of(imputation)
    history = [] if method is None else method.history_
    if method is None or not history:
        return None
    names = dict.fromkeys(name for epoch in history for name in epoch)
    losses = {name: [rounded(epoch.get(name)) for epoch in history] for name in names if name != "gradient"}
    score = "negative log density" if method.gives_distributions else "absolute error"
    sentence = describe(losses, score, keeps_last=keeps_last_epoch(method))
    return {"epochs": len(history), "losses": losses, "score": score, "sentence": sentence}


def describe(losses: Losses, score: str, *, keeps_last: bool) -> str:
    """The final validation score, and whether more epochs might improve it."""
    scores = [(value, epoch) for epoch, value in enumerate(losses.get("validation", []), 1) if value is not None]
    epochs = len(next(iter(losses.values())))
    if not scores:
        return f"{epochs} epochs, without held-out cells to validate on."
    best, best_epoch = min(scores)
    lead = f"The {score} at held-out cells was lowest in epoch {best_epoch} of {epochs} ({best:.3f}), which is used"
    if keeps_last:
        lead = f"The {score} at held-out cells is {scores[-1][0]:.3f} after the last of {epochs} epochs"
    if len(scores) < MIN_EPOCHS:
        return f"{lead}. There are too few epochs to tell whether more would help."
    if best_epoch < 0.9 * epochs:
        later = f"It was lowest in epoch {best_epoch} ({best:.3f})." if keeps_last else "Later epochs were no better."
        return f"{lead}. {later}"
    last_tenth = scores[-(len(scores) // 10) - 1 :]
    falling = last_tenth[0][0] - last_tenth[-1][0] > 0.02 * (max(scores)[0] - best)
    return f"{lead}. It {'was still falling, so more epochs may help' if falling else 'had levelled off'}."
