function compute({ hardware, model, batch, context, gamma, alpha, c, tables }) {
  const [card, shape] = [tables.hardware[hardware], tables.models[model]];
  const verify = stepOf(card, shape, gamma + 1, batch, context);
  const crossover = crossoverBatch(card, shape, gamma + 1, context);
  const speedupAt = (one) => speculationSpeedup(card, shape, alpha, gamma, one, context, c);
  return {
    plain: stepOf(card, shape, 1, batch, context),
    verify,
    verify_ms: 1000 * verify.seconds,
    waits_for: verify.bound === "memory" ? "reading" : "arithmetic",
    speedup: speedupAt(batch),
    free_positions: freePositions(card, shape, batch, context),
    crossover_batch: Number.isFinite(crossover) ? crossover : null,
    needed_gb: verify.bytes / 1e9,
    room: verify.fits ? "yes" : "no",
    curve: tables.batches.map(speedupAt),
    batches: tables.batches,
    card,
  };
}

function near(value) { return value.toFixed(1); }

function milliseconds(seconds) {
  const ms = 1000 * seconds;
  return `${fixed(ms, ms < 0.1 ? 4 : ms < 10 ? 2 : 1)} ms`;
}

function plural(count, one) { return `${count} ${one}${count === 1 ? "" : "s"}`; }

// The place of a value between `from` and `to`, on a linear or a logarithmic axis.
function scaled(from, to, low, high, log) {
  const [a, b] = log ? [Math.log(low), Math.log(high)] : [low, high];
  return (value) => from + ((to - from) * ((log ? Math.log(value) : value) - a)) / (b - a);
}

function line(x1, y1, x2, y2, kind) {
  return svg("line", { x1: near(x1), y1: near(y1), x2: near(x2), y2: near(y2), class: kind });
}

function roofPanel(results, { x: left, y: top, width, height }) {
  const { card, plain, verify, gamma } = results;
  const [peak, bandwidth] = [card.peak_flop_per_s, card.bandwidth_bytes_per_s];
  const [least, most] = [0.25, 8192];
  const [low, high] = [bandwidth * least, peak * 2.5];
  const x = scaled(left, left + width, least, most, true);
  const y = scaled(top + height, top, low, high, true);
  const ridge = peak / bandwidth;
  const roof = `${near(x(least))},${near(y(low))} ${near(x(ridge))},${near(y(peak))} ${near(x(most))},${near(y(peak))}`;
  const powers = (from, to) => [-2, -1, 0, 1, 2, 3, 4].map((power) => 10 ** power)
    .filter((value) => value >= from && value <= to);
  const point = (step, kind, radius) =>
    svg("circle", { cx: near(x(step.intensity)), cy: near(y(step.flop_per_s)), r: radius, class: kind });
  const here = x(verify.intensity);
  const right = here > left + 0.6 * width;
  return [
    words(left - 40, top - 14, "start", "sn-panel", "TFLOP/s reached"),
    ...powers(low / 1e12, high / 1e12).map((value) =>
      line(left, y(value * 1e12), left + width, y(value * 1e12), "sn-grid") +
      words(left - 7, y(value * 1e12) + 4, "end", "sn-tick", value)),
    ...powers(least, most).map((value) => words(near(x(value)), top + height + 18, "middle", "sn-tick", value)),
    words(left + width / 2, top + height + 36, "middle", "sn-axis", "operations per byte"),
    svg("polygon", { points: `${roof} ${near(x(most))},${near(y(low))}`, class: "sn-under" }),
    line(x(ridge), y(peak), x(ridge), y(low), "sn-plain"),
    words(near(x(ridge) + 6), top + height - 7, "start", "sn-tick", `ridge ${fixed(ridge, 0)}`),
    svg("polyline", { points: roof, class: "sn-roof" }),
    gamma ? line(x(plain.intensity), y(plain.flop_per_s), here, y(verify.flop_per_s), "sn-drop") : "",
    point(plain, "sn-plain-step", 5.5),
    point(verify, "sn-now", 7),
    words(near(here + (right ? -4 : 12)), near(y(verify.flop_per_s) + (right ? -13 : 5)), right ? "end" : "start",
      "sn-mark-label", plural(gamma + 1, "position")),
  ].join("");
}

function stripes(x, y, width, height) {
  const count = Math.floor(width / 6);
  return Array.from({ length: count }, (_, index) => {
    const from = x + 6 * (index + 0.5);
    const reach = Math.min(height, x + width - from);
    return line(from, y + height, from + reach, y + height - reach, "sn-kv-stripe");
  }).join("");
}

function timeBars(step, top, x) {
  const [origin, tall] = [x(0), 17];
  const weights = x(step.weights_seconds);
  const read = x(step.memory_seconds);
  const worked = x(step.compute_seconds);
  const bar = (from, to, y, kind) =>
    svg("rect", { x: near(from), y, width: near(Math.max(to - from, 0.5)), height: tall, class: kind });
  const end = (place, y, seconds) =>
    words(near(place + 6), y + 13, "start", seconds === step.seconds ? "sn-value" : "sn-tick", milliseconds(seconds));
  return [
    bar(origin, weights, top, "sn-weights"),
    read - weights > 1 ? bar(weights, read, top, "sn-kv") + stripes(weights, top, read - weights, tall) : "",
    end(read, top, step.memory_seconds),
    bar(origin, worked, top + tall + 4, "sn-compute"),
    end(worked, top + tall + 4, step.compute_seconds),
  ].join("");
}

function timePanel(results, { x: left, y: top, width, height }) {
  const { plain, verify, gamma } = results;
  const longest = Math.max(plain.seconds, verify.seconds);
  const x = scaled(left, left + width - 74, 0, longest, false);
  const row = height / 2;
  const rows = [[plain, "plain step, 1 position per text"],
    [verify, `verifying pass, ${plural(gamma + 1, "position")}`]];
  return [
    words(left, top - 14, "start", "sn-panel", "Where the time of a pass goes"),
    ...rows.map(([step, name], index) =>
      words(left, top + row * index + 16, "start", "sn-axis", name) + timeBars(step, top + row * index + 26, x)),
    line(left, top + 8, left, top + height, "sn-grid"),
  ].join("");
}

function speedupPanel(results, { x: left, y: top, width, height }) {
  const { curve, batches, batch, speedup, crossover_batch, gamma } = results;
  const last = batches[batches.length - 1];
  const highest = niceTop(Math.max(1, speedup, ...curve));
  const x = scaled(left, left + width, 1, last, true);
  const y = scaled(top + height, top, 0, highest, false);
  const points = batches.map((one, index) => `${near(x(one))},${near(y(curve[index]))}`).join(" ");
  const crossed = crossover_batch !== null && crossover_batch >= 1 && crossover_batch <= last;
  const right = batch > 20;
  const crossLeft = crossover_batch > 20;
  const foot = y(1) > top + height - 26 ? y(1) - 9 : top + height - 8; // not on the line of plain decode
  return [
    words(left - 40, top - 18, "start", "sn-panel", "Speed-up of speculation over the batch"),
    ...ticks(highest, 5).map((value) =>
      line(left, y(value), left + width, y(value), "sn-grid") +
      words(left - 7, y(value) + 4, "end", "sn-tick", `${Number(value.toFixed(2))}×`)),
    ...[1, 2, 4, 8, 16, 32, 64, 128, 256].map((one) =>
      words(near(x(one)), top + height + 18, "middle", "sn-tick", one)),
    words(left + width / 2, top + height + 36, "middle", "sn-axis", "texts in the batch"),
    line(left, y(1), left + width, y(1), "sn-plain sn-one"),
    crossed ? line(x(crossover_batch), top, x(crossover_batch), top + height, "sn-cross") +
      words(near(x(crossover_batch) + (crossLeft ? -6 : 6)), near(foot), crossLeft ? "end" : "start",
        "sn-mark-label sn-best-label", `crossover ${fixed(crossover_batch, 1)}`) : "",
    svg("polyline", { points, class: "sn-curve" }),
    svg("circle", { cx: near(x(batch)), cy: near(y(speedup)), r: 6.5, class: "sn-now" }),
    words(near(x(batch) + (right ? -8 : 8)), near(Math.max(y(speedup) - 12, top + 4)), right ? "end" : "start",
      "sn-mark-label", `${fixed(speedup, 2)}×`),
  ].join("");
}

function spokenRoofline({ card, plain, verify, gamma, batch, speedup, crossover_batch, curve, batches }) {
  const about = (step) =>
    `${milliseconds(step.seconds)}, ${fixed(step.intensity, 1)} operations per byte, bound by ${step.bound}`;
  const crossing = crossover_batch === null ? "No batch makes the verifying pass compute-bound."
    : `The verifying pass becomes compute-bound at batch ${fixed(crossover_batch, 1)}.`;
  const ridge = fixed(card.peak_flop_per_s / card.bandwidth_bytes_per_s, 0);
  return `Roofline with its ridge at ${ridge} operations per byte. ` +
    `A plain step: ${about(plain)}. A pass over ${plural(gamma + 1, "position")} per text: ${about(verify)}; ` +
    `weights ${milliseconds(verify.weights_seconds)}, keys and values ${milliseconds(verify.kv_seconds)}, ` +
    `arithmetic ${milliseconds(verify.compute_seconds)}. ` +
    `Speed-up ${fixed(speedup, 2)} times at batch ${batch}, ` +
    `${fixed(curve[0], 2)} times at batch 1 and ${fixed(curve[curve.length - 1], 2)} times at batch ` +
    `${batches[batches.length - 1]}. ${crossing}`;
}

function drawRoofline(results, width) {
  const left = 46;
  const wide = width >= 560;
  const roof = { x: left, y: 34, width: wide ? width * 0.52 - left : width - left - 10, height: 186 };
  const time = wide ? { x: width * 0.52 + 34, y: 34, width: width * 0.48 - 34, height: 186 }
    : { x: 4, y: 318, width: width - 4, height: 150 };
  const gain = { x: left, y: wide ? 318 : 526, width: width - left - 16, height: 176 };
  const body = [roofPanel(results, roof), timePanel(results, time), speedupPanel(results, gain)].join("");
  return { height: gain.y + gain.height + 44, label: spokenRoofline(results), body };
}

function render({ model, el }) {
  const legend = legendOf(["plain-step", "a plain step"], ["now", "the verifying pass"], ["weights", "reading weights"],
    ["kv", "reading keys and values"], ["compute", "arithmetic"], ["plain", "ridge; plain decode, 1×"],
    ["cross", "from here the pass is compute-bound"]);
  return mount({ model, el }, { legend, draw: drawRoofline });
}
