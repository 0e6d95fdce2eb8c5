// Ratios of two cells. The interval is MOVER's on logarithms (Zou & Donner 2008): it needs only the two intervals, and
// is narrower than the quotients of their ends. Where one of the two does not cover what launches differ by, it is
// widened as `reports/evidence/statistics.py` does.

const NORMAL_QUANTILE = 1.959964;

function ratio(one, other, coversLaunches, launchDeviation) {
  const [value, low, high] = one.map((each) => (each === null ? null : Math.log(each)));
  const [otherValue, otherLow, otherHigh] = other.map((each) => (each === null ? null : Math.log(each)));
  const difference = value - otherValue;
  if ([low, high, otherLow, otherHigh].includes(null)) return [Math.exp(difference), null, null];
  const allowance = coversLaunches ? 0 : Math.SQRT2 * NORMAL_QUANTILE * launchDeviation;
  return [
    Math.exp(difference),
    Math.exp(difference - Math.hypot(value - low, otherHigh - otherValue) - allowance),
    Math.exp(difference + Math.hypot(high - value, otherValue - otherLow) + allowance),
  ];
}

// Whether noise may explain that a ratio is not 1: one without an interval says nothing against it.
function mayBeNoise([value, low, high], leastRatio) {
  const small = value <= leastRatio && value >= 1 / leastRatio;
  return small || low === null || (low <= 1 && high >= 1);
}
