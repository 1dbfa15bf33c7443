"""Logistic regression of shares on a design, where some cells have no success and the same seeds are in all cells.

Estimates are Firth's: with Jeffreys' prior they stay finite where a cell has 0 of n, and lose the bias of small
samples (Biometrika 80, 27-38, 1993; Heinze and Schemper, Statistics in Medicine 21, 2409-2419, 2002). Outcomes
of one seed may be alike in all cells, so standard errors are cluster-robust (Liang and Zeger, Biometrika 73,
13-22, 1986; with Firth's score Mondol and Rahman, BMC Medical Research Methodology 19:51, 2019).

Axes: C cells, S seeds, K coefficients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from search.stats.intervals import LEVEL, Interval

if TYPE_CHECKING:
    import numpy as np

MOST_STEPS = 200
TOLERANCE = 1e-8
LARGEST_LOG = 700.0
"""Whose exponential is still a float."""
LONGEST = 2.0
"""Step of a coefficient: Newton's own overshoots where shares are near 0 or 1."""


@dataclass(frozen=True)
class Coefficient:
    """A coefficient: a log odds ratio."""

    estimate: float
    error: float
    """Its standard error."""
    freedom: int
    """Degrees of freedom of its t statistic."""

    @property
    def interval(self) -> Interval:
        from scipy.stats import t

        quantile = float(t.isf(LEVEL / 2, self.freedom))
        half = quantile * self.error
        return self.estimate - half, self.estimate + half

    @property
    def odds_ratio(self) -> tuple[float, float, float]:
        """The ratio of odds with its 95 % interval."""
        low, high = (math.exp(min(end, LARGEST_LOG)) for end in self.interval)
        return math.exp(self.estimate), low, high

    @property
    def p(self) -> float:
        """Two-sided p: is it 0?"""
        from scipy.stats import t

        return float(2 * t.sf(abs(self.estimate) / self.error, self.freedom))


def fit(design_CK: np.ndarray, outcomes_CS: np.ndarray) -> list[Coefficient]:
    """Return the coefficients of a design of full rank.

    outcomes_CS: 1 where a seed succeeded in a cell, 0 where it did not, NaN where it was not tried. Two seeds or more.
    The standard error is the larger of two: the cluster-robust one with its correction for S clusters,
    and that of independent seeds. Without successes the first is far too small (residuals vanish, as does what they
    show), and with few clusters either may be by chance.
    """
    import numpy as np

    tried_CS = ~np.isnan(outcomes_CS)
    n_C = tried_CS.sum(1)
    successes_C = np.nansum(outcomes_CS, 1)
    beta_K = _firth(design_CK, successes_C, n_C)

    # Firth's score of each seed: its residuals, and its part of the prior's.
    share_C, covariance_KK, leverage_C = _information(design_CK, beta_K, n_C)
    residual_CS = np.where(tried_CS, np.nan_to_num(outcomes_CS) - share_C[:, None], 0.0)
    prior_C = leverage_C * (0.5 - share_C) / n_C
    score_KS = design_CK.T @ (residual_CS + tried_CS * prior_C[:, None])

    clusters = int(tried_CS.any(0).sum())
    robust_KK = covariance_KK @ (score_KS @ score_KS.T) @ covariance_KK
    robust_KK = robust_KK * clusters / (clusters - 1)
    variance_K = np.maximum(np.diag(robust_KK), np.diag(covariance_KK))
    pairs = zip(beta_K, np.sqrt(variance_K), strict=True)
    return [Coefficient(float(beta), float(error), clusters - 1) for beta, error in pairs]


def _firth(design_CK: np.ndarray, successes_C: np.ndarray, n_C: np.ndarray) -> np.ndarray:
    """Return the coefficients at which Firth's score is 0, by Newton's method with short steps."""
    import numpy as np

    beta_K = np.zeros(design_CK.shape[1])
    for _ in range(MOST_STEPS):
        share_C, covariance_KK, leverage_C = _information(design_CK, beta_K, n_C)
        residual_C = successes_C - n_C * share_C
        score_K = design_CK.T @ (residual_C + leverage_C * (0.5 - share_C))
        step_K = covariance_KK @ score_K
        longest = np.abs(step_K).max()
        # The tolerance, since the last step may be 0.
        shortened = min(1.0, LONGEST / (longest + TOLERANCE))
        beta_K = beta_K + step_K * shortened
        if longest < TOLERANCE:
            break
    return beta_K


def _information(design_CK: np.ndarray, beta_K: np.ndarray, n_C: np.ndarray) -> tuple[Any, Any, Any]:
    """Return shares, the inverse of Fisher's information, and the cells' leverages, which sum to K."""
    import numpy as np
    from scipy.special import expit

    share_C = expit(design_CK @ beta_K)
    variance_C = n_C * share_C * (1 - share_C)
    weighted_CK = design_CK * variance_C[:, None]
    covariance_KK = np.linalg.inv(weighted_CK.T @ design_CK)
    return share_C, covariance_KK, np.einsum("ck,kl,cl->c", weighted_CK, covariance_KK, design_CK)
