"""One against the mean of the others: for each of several nodes on each of several things, all at once.

d = mean log of the node - mean of the others' mean logs. Its variance is v + sum(v of others) / m^2, where v is the
variance of a mean and m the number of others. Where launches deviate alike on all nodes v comes from their common
deviation, and so do the degrees of freedom; else each node has its own, and degrees of freedom are Satterthwaite's
(1946): of two nodes this is Welch's t (1947). Of more they are at most the node's own: by chance its launches agree
too well, and Satterthwaite's formula then takes the others' degrees of freedom for its own. Own simulation, six to ten
nodes alike on five to eight things with three launches each, any p < 0.05 after Holm: 10-41 % by his formula alone.
Tables are nodes x things.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

_NO_SPREAD = 1e-9
"""Means whose logarithms are this close differ by rounding alone."""


@dataclass(frozen=True)
class Means:
    """Mean logarithms of each node on each thing; not a number where a node has none of a thing."""

    values: Floats
    variances: Floats
    """Of the means, not of the launches."""
    freedoms: Floats
    """Degrees of freedom of these variances; infinite where they are assumed."""
    common: Flags
    """Where the variance rests on the deviation that launches on all nodes have in common."""

    @property
    def present(self) -> Flags:
        """Where there is a mean."""
        return ~np.isnan(self.values)


@dataclass(frozen=True)
class Differences:
    """Estimates of differences of logarithms, with what is needed to judge them; any shape."""

    values: Floats
    variances: Floats
    squares: Floats
    """Sum of the squared parts of the variance, each over its degrees of freedom: Satterthwaite's denominator."""

    @property
    def freedoms(self) -> Floats:
        """Degrees of freedom after Satterthwaite; infinite where every variance is assumed, or zero."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.squares > 0, self.variances**2 / self.squares, np.inf)

    def p_values(self) -> Floats:
        """Return the two-sided p-value of each; where no launch deviates, whether there is any difference at all."""
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(self.values) / np.sqrt(self.variances)
        found = 2 * stdtr(self.freedoms, -t)
        certain = np.where(np.abs(self.values) < _NO_SPREAD, 1.0, 0.0)
        spread = np.sqrt(self.variances) >= _NO_SPREAD
        return np.where(np.isnan(self.values), np.nan, np.where(spread, found, certain))

    def half_widths(self, confidence: float) -> Floats:
        """Return half the width of each interval."""
        quantiles = np.asarray(stdtrit(self.freedoms, 0.5 + confidence / 2), dtype=np.float64)
        return quantiles * np.sqrt(self.variances)

    def means(self) -> "Differences":
        """Return the mean of each row over the columns that it has, whose errors are independent."""
        counts = np.maximum(1, (~np.isnan(self.values)).sum(axis=1))
        empty = np.isnan(self.values).all(axis=1)
        sums = (np.nansum(each, axis=1) for each in (self.values, self.variances, self.squares))
        found = (np.where(empty, np.nan, total / counts**power) for total, power in zip(sums, (1, 2, 4), strict=True))
        return Differences(*found)


def against_others(means: Means, others: Flags) -> Differences:
    """Return each node against the mean of those flagged in ``others``, itself not counted; else not a number."""
    counted = others & means.present
    count = counted.sum(axis=0) - counted
    squares = means.variances**2 / means.freedoms
    with np.errstate(divide="ignore", invalid="ignore"):
        value = means.values - _of_others(means.values, counted) / count
        # Rounding may leave less than nothing of a difference of sums.
        variance = means.variances + np.maximum(0.0, _of_others(means.variances, counted)) / count**2.0
        parts = squares + np.maximum(0.0, _of_others(squares, counted)) / count**4.0
        own = variance**2 / means.freedoms
    both = np.where(means.common, own, np.where(count > 1, np.maximum(parts, own), parts))
    missing = ~means.present | (count == 0)
    return Differences(*(np.where(missing, np.nan, each) for each in (value, variance, both)))


def _of_others(parts: Floats, counted: Flags) -> Floats:
    """Return for each node the sum over the others that are counted."""
    own = np.where(counted, parts, 0.0)
    total: Floats = own.sum(axis=0) - own
    return total
