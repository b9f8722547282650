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
  const [left, right, top, bottom] = [40, 16, 30, 40];
  const highest = niceTop(Math.max(1, ...curve));
  const last = curve.length - 1;
  const x = (length) => left + ((width - left - right) * length) / last;
  const y = (value) => height - bottom - ((height - top - bottom) * value) / highest;
  const label = (length, dx, dy, anchor, kind, text) =>
    svg("text", { x: x(length) + dx, y: y(curve[length]) + dy, "text-anchor": anchor, class: `sn-mark-label ${kind}` }, text);
  const over = best_gamma < 3 ? "start" : best_gamma > last - 4 ? "end" : "middle";
  const side = gamma > last - 4 ? -1 : 1;
  const low = y(curve[gamma]) + 22 > y(0) - 6 ? -14 : 22; // under the point, unless it lies on the axis

  const rows = ticks(highest, 6).map((value) =>
    svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "sn-grid" }) +
    svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end", class: "sn-tick" }, `${Number(value.toFixed(2))}×`));
  const every = width < 420 ? 2 : 1;
  const columns = curve.map((_, length) => length % every ? "" :
    svg("text", { x: x(length), y: height - bottom + 18, "text-anchor": "middle", class: "sn-tick" }, length));
  const points = curve.map((value, length) => `${x(length).toFixed(1)},${y(value).toFixed(1)}`);
  const dots = curve.map((value, length) => svg("circle", { cx: x(length), cy: y(value), r: 2.5, class: "sn-dot" }));
  const [bx, by] = [x(best_gamma), y(best_speedup)];
  const same = gamma === best_gamma;
  const body = [
    ...rows, ...columns,
    svg("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle", class: "sn-axis" }, "draft length γ"),
    svg("line", { x1: left, x2: width - right, y1: y(1), y2: y(1), class: "sn-plain" }),
    svg("polygon", { points: `${x(0)},${y(0)} ${points.join(" ")} ${x(last)},${y(0)}`, class: "sn-area" }),
    svg("line", { x1: x(gamma), x2: x(gamma), y1: y(curve[gamma]), y2: y(0), class: "sn-drop" }),
    svg("polyline", { points: points.join(" "), class: "sn-curve" }), ...dots,
    svg("path", { d: `M${bx} ${by - 9}l9 9l-9 9l-9-9z`, class: "sn-best" }),
    svg("circle", { cx: x(gamma), cy: y(curve[gamma]), r: same ? 4.5 : 6.5, class: "sn-now" }),
    label(best_gamma, 0, -16, over, "sn-best-label", `${same ? "γ here, and best: " : "best γ "}${best_gamma} · ${fixed(best_speedup, 2)}×`),
    same ? "" : label(gamma, 9 * side, low, side > 0 ? "start" : "end", "", `γ ${gamma} · ${fixed(curve[gamma], 2)}×`),
  ];
  const spoken = `Speed-up over draft length 0 to ${last}. At γ ${gamma} it is ${fixed(curve[gamma], 2)} times; ` +
    `the best is γ ${best_gamma} with ${fixed(best_speedup, 2)} times; at γ ${last} it is ${fixed(curve[last], 2)} times.`;
  return { height, label: spoken, body: body.join("") };
}

function render({ model, el }) {
  const legend = legendOf(["now", "γ of the slider"], ["best", "best γ"], ["plain", "plain decode, 1×"]);
  return mount({ model, el }, { legend, draw: drawCurve });
}
