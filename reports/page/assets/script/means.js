// Geometric means of the ratios to a reference, over the groups that pass the filters. The interval is MOVER's for a sum of
// logarithms (Zou & Donner 2008), as in `reports/evidence/means.py`: the errors of different groups are independent.

const OF_NO_CELL = { key: "", word: "", flags: [] };

// A block like those of the groups; none where no place has two groups. What noise may explain counts like all else: a mean
// of significant ratios alone would be too far from 1.
function meanBlock(known, state, reference, groups, heads) {
  const rows = [];
  let most = 0;
  for (const [line, ratios] of ratiosOf(known, state, reference, groups)) {
    const fields = new Map();
    for (const [across, all] of ratios) {
      most = Math.max(most, all.length);
      fields.set(across, { cell: OF_NO_CELL, shown: meanOf(known, state, all, groups.size) });
    }
    rows.push({ head: heads.get(line), fields });
  }
  if (most < 2) return null;
  if (state.transposed) rows.sort((a, b) => a.head.key - b.head.key);
  return { name: `Geometric mean of the ${groups.size} groups shown`, rows: sorted(rows, state) };
}

// By line and column the ratios of all groups.
function ratiosOf(known, state, reference, groups) {
  const found = new Map();
  for (const [line, across, { cell }] of fieldsOf(groups)) {
    const times = state.few && !cell.covers_launches ? null : timesOf(known, state, reference, cell);
    if (!times) continue;
    if (!found.has(line)) found.set(line, new Map());
    const fields = found.get(line);
    if (!fields.has(across)) fields.set(across, []);
    fields.get(across).push(times);
  }
  return found;
}

function* fieldsOf(groups) {
  for (const lines of groups.values()) {
    for (const [line, fields] of lines) {
      for (const [across, field] of fields) yield [line, across, field];
    }
  }
}

function meanOf(known, state, ratios, groups) {
  const times = geometricMean(ratios);
  const fewer = ratios.length < groups;
  const more = fewer ? ` (${ratios.length})` : "";
  if (ratios.every(isItself)) return { text: `1${more}`, numbers: times, kind: "mean", title: "the reference itself", fewer };
  const title = `${ends(times) || "no interval"}; over ${counted(ratios.length, "group")}`;
  if (state.noise && mayBeNoise(times, known.least_ratio)) return { text: "≈", kind: "mean", title, fewer: false };
  return { text: `${number(times[0])}×${more}`, numbers: times, spread: deviation(times), kind: "mean", title, fewer };
}

const isItself = ([value, low, high]) => value === 1 && low === 1 && high === 1;

function geometricMean(ratios) {
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const middle = mean(ratios.map(([value]) => Math.log(value)));
  if (ratios.some(([, low]) => low === null)) return [Math.exp(middle), null, null];
  const down = Math.hypot(...ratios.map(([value, low]) => Math.log(value / low))) / ratios.length;
  const up = Math.hypot(...ratios.map(([value, , high]) => Math.log(high / value))) / ratios.length;
  return [Math.exp(middle), Math.exp(middle - down), Math.exp(middle + up)];
}
