// The kernel's stand-in on a page without one: closed forms, the roofline, and the accept/reject rule at one position.
// Each function repeats a Python function of the package, operation for operation, and is compared with it.

function expectedTokens(alpha, gamma) {
  let total = 1;
  for (let i = 0; i < gamma; i++) total = 1 + alpha * total;
  return total;
}

function tokensDistribution(alpha, gamma) {
  const law = Array.from({ length: gamma }, (_, n) => alpha ** n * (1 - alpha));
  return [...law, alpha ** gamma];
}

function speedup(alpha, gamma, c) {
  return expectedTokens(alpha, gamma) / (gamma * c + 1);
}

function bestGamma(alpha, c, maxGamma) {
  let best = [0, speedup(alpha, 0, c)];
  for (let gamma = 1; gamma <= maxGamma; gamma++) {
    const gain = speedup(alpha, gamma, c);
    if (gain - best[1] > 1e-12) best = [gamma, gain];
  }
  return best;
}

function stepOf(hardware, model, positions, batch, context) {
  const kv_bytes = batch * context * (2 * model.layers * model.kv_width * model.bytes_per_weight);
  const weight_bytes = model.parameters * model.bytes_per_weight;
  const flops = batch * positions * (2 * model.parameters + 4 * model.layers * model.width * context);
  const bytes = weight_bytes + kv_bytes;
  const weights_seconds = weight_bytes / hardware.bandwidth_bytes_per_s;
  const kv_seconds = kv_bytes / hardware.bandwidth_bytes_per_s;
  const compute_seconds = flops / hardware.peak_flop_per_s;
  const memory_seconds = weights_seconds + kv_seconds;
  const seconds = Math.max(memory_seconds, compute_seconds);
  return {
    flops, bytes, weights_seconds, kv_seconds, compute_seconds, memory_seconds, seconds,
    fits: bytes <= hardware.capacity_bytes, bound: memory_seconds >= compute_seconds ? "memory" : "compute",
    intensity: flops / bytes, flop_per_s: flops / seconds,
  };
}

function freePositions(hardware, model, batch, context) {
  const one = stepOf(hardware, model, 1, batch, context);
  let most = Math.max(1, Math.floor(one.memory_seconds / one.compute_seconds) + 1);
  while (most > 1 && stepOf(hardware, model, most, batch, context).bound === "compute") most -= 1;
  return most;
}

function crossoverBatch(hardware, model, positions, context) {
  const each = 2 * model.parameters + 4 * model.layers * model.width * context;
  const arithmetic = (positions * each) / hardware.peak_flop_per_s;
  const kv_bytes = context * (2 * model.layers * model.kv_width * model.bytes_per_weight);
  const gained = arithmetic - kv_bytes / hardware.bandwidth_bytes_per_s;
  const reading = (model.parameters * model.bytes_per_weight) / hardware.bandwidth_bytes_per_s;
  return gained > 0 ? reading / gained : Infinity;
}

function speculationSpeedup(hardware, model, alpha, gamma, batch, context, c) {
  const plain = stepOf(hardware, model, 1, batch, context).seconds;
  const verify = stepOf(hardware, model, gamma + 1, batch, context).seconds;
  return expectedTokens(alpha, gamma) / (gamma * c + verify / plain);
}

function softmax(logits) {
  const top = Math.max(...logits);
  const weights = logits.map((logit) => Math.exp(logit - top));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

function sliderRows(mismatch) {
  const logits = [2, 1.4, 0.9, 0.5, 0, -0.5, -1, -1.4];
  const lowered = logits.map((logit, token) => logit - (token % 2 === 0 ? 2.55 * mismatch : 0));
  return [softmax(logits), softmax(lowered)];
}

function acceptance(p, q) {
  return p.reduce((sum, share, token) => sum + Math.min(share, q[token]), 0);
}

function residual(p, q) {
  const left = p.map((share, token) => Math.max(share - q[token], 0));
  let total = 0;
  for (const share of left) total += share;
  return total > 0 ? left.map((share) => share / total) : p.slice();
}

function flip(probability, u) {
  return u < probability;
}

function draw(weights, u) {
  let total = 0;
  for (let i = 0; i < weights.length; i++) total += weights[i];
  let index = 0;
  let running = weights[0];
  while (index < weights.length - 1 && running <= u * total) running += weights[++index];
  return index;
}

function verify(p, q, x, uniform) {
  const ratio = p[x] < q[x] ? p[x] / q[x] : p[x] > 0 ? 1 : 0;
  return flip(ratio, uniform()) ? [true, x] : [false, draw(residual(p, q), uniform())];
}

function oneRound(p, q, gamma, uniform) {
  const [drafted, tokens] = [[], []];
  for (let i = 0; i < gamma; i++) drafted.push(draw(q, uniform()));
  for (const x of drafted) {
    const [accepted, token] = verify(p, q, x, uniform);
    tokens.push(token);
    if (!accepted) return { tokens, kind: "recovered" };
  }
  tokens.push(draw(p, uniform()));
  return { tokens, kind: "bonus" };
}

function uniformStream(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

function acceptanceRow(first, caught, fade, depth, ranks) {
  const row = [first * fade ** depth];
  let left = 1 - row[0];
  for (let rank = 1; rank < ranks; rank++) {
    row.push(Math.min(row[rank - 1], caught * left));
    left -= row[rank];
  }
  return row;
}

function reachOf(parents, first, caught, fade) {
  const [levels, elders, reach] = [[], new Map(), []];
  for (const parent of parents) {
    const [level, rank] = [parent < 0 ? 0 : levels[parent] + 1, elders.get(parent) ?? 0];
    levels.push(level);
    elders.set(parent, rank + 1);
    reach.push(acceptanceRow(first, caught, fade, level, rank + 1)[rank] * (parent < 0 ? 1 : reach[parent]));
  }
  return reach;
}
