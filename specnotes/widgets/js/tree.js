function compute({ nodes, first, caught, fade, extra, tables }) {
  const parents = tables.grown[[first, caught, fade].map((value) => value.toFixed(1)).join(" ")];
  const reach = reachOf(parents, first, caught, fade);
  const tokens = [1];
  for (const chance of reach) tokens.push(tokens[tokens.length - 1] + chance);
  const gains = tokens.map((yielded, size) => yielded / (1 + extra * size));
  const best = gains.findIndex((gain) => gain > Math.max(...gains) - 1e-12);
  return {
    parents: parents.slice(0, nodes),
    reach: reach.slice(0, nodes),
    tokens: tokens[nodes],
    pass_cost: 1 + extra * nodes,
    gain: gains[nodes],
    best_nodes: best,
    best_gain: gains[best],
    added: nodes ? reach[nodes - 1] : null,
    tokens_curve: tokens,
    gain_curve: gains,
  };
}

function near(value) { return value.toFixed(1); }

function levelsOf(parents) {
  const levels = [];
  for (const parent of parents) levels.push(parent < 0 ? 1 : levels[parent] + 1);
  return levels;
}

// Where the nodes stand from left to right, 0 to 1, a parent over the middle of its children; the root's place last.
function places(parents) {
  const below = (node) => parents.flatMap((parent, child) => (parent === node ? [child] : []));
  const x = {};
  let leaves = 0;
  const visit = (node) => {
    const children = below(node);
    children.forEach(visit);
    x[node] = children.length ? (x[children[0]] + x[children[children.length - 1]]) / 2 : leaves++ + 0.5;
  };
  visit(-1);
  return (node) => x[node] / Math.max(1, leaves);
}

function treePanel({ parents, reach }, { x: left, y: top, width, height }) {
  const levels = levelsOf(parents);
  const place = places(parents);
  const gap = Math.min(44, height / Math.max(1, ...levels));
  const at = (node) => [left + 8 + (width - 16) * place(node), top + 8 + gap * (node < 0 ? 0 : levels[node])];
  const biggest = Math.min(13, gap / 2 - 1);
  const edges = parents.map((parent, node) => {
    const [[x1, y1], [x2, y2]] = [at(parent), at(node)];
    return svg("line", { x1: near(x1), y1: near(y1), x2: near(x2), y2: near(y2), class: "sn-edge" });
  });
  const last = parents.length - 1;
  const dots = parents.map((_, node) => {
    const [cx, cy] = at(node);
    const r = Math.max(2, biggest * Math.sqrt(reach[node]));
    return svg("circle", { cx: near(cx), cy: near(cy), r: near(r), class: node === last ? "sn-newest" : "sn-emitted" });
  });
  const [rx, ry] = at(-1);
  const root = svg("rect", { x: near(rx - 8), y: near(ry - 8), width: 16, height: 16, class: "sn-p" });
  const beside = rx + 80 < left + width ? [rx + 14, "start"] : [rx - 14, "end"];
  return [...edges, root, ...dots, words(near(beside[0]), near(ry + 4), beside[1], "sn-tick", "text so far")].join("");
}

function budgetPanel(results, { x: left, y: top, width, height }) {
  const { nodes, tokens_curve, gain_curve, best_nodes, best_gain, gain } = results;
  const last = gain_curve.length - 1;
  const highest = niceTop(Math.max(...tokens_curve, ...gain_curve));
  const x = (size) => left + (width * size) / last;
  const y = (value) => top + height - (height * value) / highest;
  const line = (curve) => curve.map((value, size) => `${near(x(size))},${near(y(value))}`).join(" ");
  const size = 8;
  const [bx, by] = [x(best_nodes), y(best_gain)];
  const right = nodes > last - 9;
  return [
    ...ticks(highest, 5).map((value) =>
      svg("line", { x1: left, x2: left + width, y1: y(value), y2: y(value), class: "sn-grid" }) +
      words(left - 8, y(value) + 4, "end", "sn-tick", Number(value.toFixed(2)))),
    ...[0, 4, 8, 12, 16, 20, 24, 28, 32].filter((one) => width > 340 || one % 8 === 0)
      .map((one) => words(near(x(one)), top + height + 18, "middle", "sn-tick", one)),
    words(left + width / 2, top + height + 36, "middle", "sn-axis", "nodes in the tree"),
    svg("line", { x1: left, x2: left + width, y1: y(1), y2: y(1), class: "sn-plain" }),
    svg("polyline", { points: line(tokens_curve), class: "sn-yield" }),
    words(left + width, near(y(tokens_curve[last]) - 8), "end", "sn-tick", "tokens per pass"),
    svg("polyline", { points: line(gain_curve), class: "sn-curve" }),
    svg("path", { d: `M${near(bx)} ${near(by - size)}l${size} ${size}l-${size} ${size}l-${size}-${size}z`, class: "sn-best" }),
    svg("circle", { cx: near(x(nodes)), cy: near(y(gain)), r: nodes === best_nodes ? 4 : 6.5, class: "sn-now" }),
    words(near(x(nodes) + (right ? -10 : 10)), near(y(gain) - 13), right ? "end" : "start", "sn-mark-label",
      `${fixed(gain, 2)}×`),
  ].join("");
}

function spokenTree({ parents, tokens, gain, best_nodes, best_gain, pass_cost }) {
  const levels = levelsOf(parents);
  const counts = Array.from({ length: Math.max(0, ...levels) }, (_, index) => levels.filter((one) => one === index + 1).length);
  const shape = counts.length ? `The best tree of ${parents.length} nodes has ${counts.join(", ")} on its levels. ` : "No tree. ";
  return `${shape}It yields ${fixed(tokens, 2)} tokens a pass at the cost of ${fixed(pass_cost, 2)} plain steps, ` +
    `a speed-up of ${fixed(gain, 2)} times; the best budget is ${best_nodes} nodes with ${fixed(best_gain, 2)} times.`;
}

function drawTree(results, width) {
  const left = 46;
  const depth = Math.max(1, ...levelsOf(results.parents));
  const tree = { x: 4, y: 4, width: width - 8, height: Math.min(300, Math.max(150, 36 * depth)) };
  const budget = { x: left, y: tree.height + 56, width: width - left - 16, height: 170 };
  const body = [
    treePanel(results, tree),
    words(left - 40, budget.y - 16, "start", "sn-panel", "Over the budget"),
    budgetPanel(results, budget),
  ].join("");
  return { height: budget.y + budget.height + 44, label: spokenTree(results), body };
}

function render({ model, el }) {
  const legend = legendOf(["node", "a node; its area is the chance that it is accepted"], ["newest", "the last node added"],
    ["yield", "tokens per pass"], ["now", "speed-up at this budget"], ["best", "best budget"], ["plain", "plain decode, 1"]);
  return mount({ model, el }, { legend, draw: drawTree });
}
