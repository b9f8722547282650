function compute({ alpha, gamma, c }) {
  const [best_gamma, best_speedup] = bestGamma(alpha, c, 16);
  return {
    tokens_per_pass: expectedTokens(alpha, gamma),
    speedup: speedup(alpha, gamma, c),
    best_gamma,
    best_speedup,
    tokens_if_all_accepted: gamma + 1,
    curve: Array.from({ length: 17 }, (_, length) => speedup(alpha, length, c)),
  };
}

function drawCurve(results, width) {
  const { gamma, curve, best_gamma, best_speedup } = results;
  const height = 264;
  const [left, right, top, bottom] = [50, 16, 30, 40];
  const highest = niceTop(Math.max(1, ...curve));
  const last = curve.length - 1;
  const x = (length) => left + ((width - left - right) * length) / last;
  const y = (value) => height - bottom - ((height - top - bottom) * value) / highest;
  const over = best_gamma < 3 ? "start" : best_gamma > last - 4 ? "end" : "middle";
  // The slider's label goes beside its point: under the stretch of curve above it, or over it near the axis.
  const side = gamma > last - 5 ? -1 : 1;
  const beside = curve.filter((_, length) => side * (length - gamma) >= 0 && Math.abs(x(length) - x(gamma)) < 125);
  const under = y(Math.min(...beside)) + 20;
  const level = under < y(0) - 6 ? under : y(Math.max(...beside)) - 12;

  const rows = ticks(highest, 6).map((value) =>
    svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "sn-grid" }) +
    words(left - 8, y(value) + 4, "end", "sn-tick", `${Number(value.toFixed(2))}×`));
  const every = width < 420 ? 2 : 1;
  const columns = curve.map((_, length) =>
    length % every ? "" : words(x(length), height - bottom + 18, "middle", "sn-tick", length));
  const points = curve.map((value, length) => `${x(length).toFixed(1)},${y(value).toFixed(1)}`);
  const dots = curve.map((value, length) => svg("circle", { cx: x(length), cy: y(value), r: 2.5, class: "sn-dot" }));
  const [bx, by] = [x(best_gamma), y(best_speedup)];
  const same = gamma === best_gamma;
  const size = same ? 11 : 9;
  const area = `${x(0)},${y(0)} ${points.join(" ")} ${x(last)},${y(0)}`;
  const diamond = `M${bx} ${by - size}l${size} ${size}l-${size} ${size}l-${size}-${size}z`;
  const best = `${same ? "γ here, and best: " : "best γ "}${best_gamma} · ${fixed(best_speedup, 2)}×`;
  const here = `γ ${gamma} · ${fixed(curve[gamma], 2)}×`;
  const body = [
    ...rows, ...columns,
    words((left + width - right) / 2, height - 4, "middle", "sn-axis", "draft length γ"),
    svg("line", { x1: left, x2: width - right, y1: y(1), y2: y(1), class: "sn-plain" }),
    svg("polygon", { points: area, class: "sn-area" }),
    svg("line", { x1: x(gamma), x2: x(gamma), y1: y(curve[gamma]), y2: y(0), class: "sn-drop" }),
    svg("polyline", { points: points.join(" "), class: "sn-curve" }), ...dots,
    svg("path", { d: diamond, class: "sn-best" }),
    svg("circle", { cx: x(gamma), cy: y(curve[gamma]), r: same ? 4.5 : 6.5, class: "sn-now" }),
    words(bx, by - 16, over, "sn-mark-label sn-best-label", best),
    same ? "" : words(x(gamma) + 9 * side, level, side > 0 ? "start" : "end", "sn-mark-label", here),
  ];
  const spoken = `Speed-up over draft length 0 to ${last}. At γ ${gamma} it is ${fixed(curve[gamma], 2)} times; ` +
    `the best is γ ${best_gamma} with ${fixed(best_speedup, 2)} times; ` +
    `at γ ${last} it is ${fixed(curve[last], 2)} times.`;
  return { height, label: spoken, body: body.join("") };
}

function render({ model, el }) {
  const legend = legendOf(["now", "γ of the slider"], ["best", "best γ"], ["plain", "plain decode, 1×"]);
  return mount({ model, el }, { legend, draw: drawCurve });
}
