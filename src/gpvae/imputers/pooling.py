"""Estimates from completed tables, combined by the rules of Rubin (1987) and of Barnard and Rubin (1999)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from gpvae.data.panel import DataError, Floats
from gpvae.imputers.draws import require_level


@dataclass(frozen=True)
class Pooled:
    """An estimate whose uncertainty includes that of the values that were missing; numbers, or arrays of one shape."""

    estimate: Floats
    std_error: Floats
    df: Floats  # degrees of freedom of the t distribution that the interval is of
    lower: Floats
    upper: Floats
    fraction_missing: Floats  # of the information about the estimate


def pool(
    estimates: ArrayLike, variances: ArrayLike, *, level: float = 0.95, df_complete: float | None = None
) -> Pooled:
    """Combine the estimates of m completed tables, with their variances (squared standard errors). (m, ...) each

        pooled = pool(*zip(*[analyse(table) for table in imputation.tables()]))

    With W the mean variance and B the variance between estimates, the variance is T = W + (1 + 1/m) B.

    df_complete: degrees of freedom that the analysis has on complete data, for tables of few rows; by default infinite.
    """
    q, u = _checked(np.asarray(estimates, dtype=np.float64), np.asarray(variances, dtype=np.float64))
    require_level(level)
    if df_complete is not None and not df_complete > 0:
        raise DataError(f"df_complete must be above 0, got {df_complete:g}")
    m = len(q)
    centre, within, between = q.mean(axis=0), u.mean(axis=0), (1 + 1 / m) * q.var(axis=0, ddof=1)
    total = within + between
    share = between / total  # of the variance that is due to missing values
    df = _degrees_of_freedom(share, m, df_complete)
    fraction = (between / within + 2 / (df + 3)) / (1 + between / within)
    std_error = np.sqrt(total)
    margin = stdtrit(df, (1 + level) / 2) * std_error
    return Pooled(centre, std_error, df, centre - margin, centre + margin, fraction)


def _checked(estimates: Floats, variances: Floats) -> tuple[Floats, Floats]:
    if estimates.shape != variances.shape:
        raise DataError(
            f"each estimate needs its variance: estimates have shape {estimates.shape}, variances {variances.shape}"
        )
    if not estimates.ndim or len(estimates) < 2:
        raise DataError("pooling needs the estimates of at least two completed tables")
    if not np.isfinite(estimates).all() or not np.isfinite(variances).all():
        raise DataError("estimates and variances must be finite")
    if (variances <= 0).any():
        raise DataError(f"variances, the squares of standard errors, must be above 0, got {variances.min():g}")
    return estimates, variances


def _degrees_of_freedom(share: Floats, m: int, df_complete: float | None) -> Floats:
    with np.errstate(divide="ignore"):  # infinite if all estimates are the same
        df = (m - 1) / share**2
    if df_complete is None:
        return df
    observed = (df_complete + 1) / (df_complete + 3) * df_complete * (1 - share)
    return 1 / (1 / df + 1 / observed)
