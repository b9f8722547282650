function compute({ mismatch, gamma, rounds, seed }) {
  const [p, q] = sliderRows(mismatch);
  const uniform = uniformStream(seed);
  const counts = p.map(() => 0);
  let [accepted, examined, emitted] = [0, 0, 0];
  for (let round = 0; round < rounds; round++) {
    const { tokens, kind } = oneRound(p, q, gamma, uniform);
    for (const token of tokens) counts[token] += 1;
    emitted += tokens.length;
    accepted += tokens.length - 1;
    examined += kind === "recovered" ? tokens.length : tokens.length - 1;
  }
  const alpha = acceptance(p, q);
  return {
    p, q, alpha,
    emitted: counts.map((count) => count / emitted),
    measured_acceptance: examined ? accepted / examined : null,
    tokens_per_pass: emitted / rounds,
    tokens_formula: expectedTokens(Math.min(alpha, 1), gamma),
  };
}

function drawBars(results, width) {
  const { p, q, emitted, rounds } = results;
  const height = 264;
  const [left, right, top, bottom] = [50, 8, 26, 40];
  const highest = [0.5, 0.6, 0.8, 1].find((value) => value >= Math.max(...p, ...q, ...emitted)) || 1;
  const slot = (width - left - right) / p.length;
  const bar = Math.min(26, slot * 0.36);
  const middle = (token) => left + slot * (token + 0.5);
  const y = (share) => height - bottom - ((height - top - bottom) * share) / highest;
  const percent = (share) => fixed(100 * share, 1);
  const box = (x, share, size, kind) => {
    const [edge, tall] = [y(share), y(0) - y(share)].map((length) => length.toFixed(1));
    return svg("rect", { x: x.toFixed(1), y: edge, width: size.toFixed(1), height: tall, class: kind });
  };

  const rows = ticks(highest, 5).map((value) =>
    svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), class: "sn-grid" }) +
    words(left - 8, y(value) + 4, "end", "sn-tick", `${Math.round(100 * value)}%`));
  const groups = p.map((share, token) => [
    box(middle(token) - bar, share, bar - 1, "sn-p"),
    box(middle(token) + 1, emitted[token], bar - 1, "sn-emitted"),
    box(middle(token) - bar - 3, q[token], 2 * bar + 6, "sn-q"),
    words(middle(token), y(Math.max(share, emitted[token])) - 7, "middle", "sn-value", percent(share)),
    words(middle(token), height - bottom + 18, "middle", "sn-tick", token),
  ].join(""));
  const axis = words((left + width - right) / 2, height - 4, "middle", "sn-axis", "token (the number above: p in %)");
  const each = p.map((share, token) =>
    `token ${token}: p ${percent(share)}, emitted ${percent(emitted[token])}, draft q ${percent(q[token])}`);
  const label = `Target p against what ${fixed(rounds, 0)} rounds of the rule emitted, in percent. ${each.join("; ")}.`;
  return { height, label, body: [...rows, ...groups, axis].join("") };
}

function render({ model, el }) {
  const about = { type: "button", class: "sn-button", "data-action": "roll", ...OWN_KEYS };
  const again = node("button", about, "Roll new dice");
  again.addEventListener("click", () => {
    model.set("seed", (model.get("seed") + 1) % 4294967296);
    model.save_changes();
  });
  const legend = legendOf(["p", "target p"], ["emitted", "emitted by the rule"], ["q", "draft q"]);
  return mount({ model, el }, { legend, draw: drawBars, extras: [again] });
}
