// What the explorers draw with: sliders, lists, readouts and a figure. `model` is anywidget's, or the page's stand-in.

function fixed(value, places) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  const halves = value * 2 ** (places + 1); // an odd integer only where the decimal is an exact tie
  const tie = places > 0 && Number.isInteger(halves) && halves % 2 !== 0;
  const scaled = value * 10 ** places;
  const even = tie ? (2 * Math.round(scaled / 2)) / 10 ** places : value; // ties go to even, as in Python
  const [whole, ...rest] = even.toFixed(places).split(".");
  return [whole.replace(/\B(?=(\d{3})+$)/g, ","), ...rest].join(".");
}

function fill(template, values) {
  return template.replace(/\{(\w+)(?::\.(\d)f)?\}/g, (_, key, places) => fixed(values[key], Number(places || 0)));
}

function node(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function svg(tag, attributes, text = "") {
  const written = Object.entries(attributes).map(([name, value]) => ` ${name}="${value}"`);
  return `<${tag}${written.join("")}>${text}</${tag}>`;
}

const OWN_KEYS = { "data-lm-suppress-shortcuts": "true" }; // or JupyterLab takes the arrow keys for itself

function sliderControl(model, spec) {
  const output = node("output", { "aria-live": "off", "aria-hidden": "true" }); // the slider itself says its value
  const limits = { min: spec.min, max: spec.max, step: spec.step };
  const about = { "aria-label": spec.label, "data-setting": spec.name, ...OWN_KEYS };
  const input = node("input", { type: "range", ...limits, ...about });
  const show = () => {
    const value = model.get(spec.name);
    const text = fixed(value, spec.places);
    if (Number(input.value) !== value) input.value = value;
    input.style.setProperty("--filled", `${(100 * (value - spec.min)) / (spec.max - spec.min)}%`);
    input.setAttribute("aria-valuetext", text);
    output.textContent = text;
  };
  input.addEventListener("input", () => {
    model.set(spec.name, Number(input.value));
    model.save_changes();
    show();
  });
  const name = node("span", { class: "sn-name" }, spec.label);
  return { element: node("label", { class: "sn-slider" }, name, input, output), show };
}

function choiceControl(model, spec) {
  const about = { "aria-label": spec.label, "data-setting": spec.name, ...OWN_KEYS };
  const select = node("select", about, ...spec.options.map((name) => node("option", { value: name }, name)));
  const show = () => { select.value = model.get(spec.name); };
  select.addEventListener("change", () => {
    model.set(spec.name, select.value);
    model.save_changes();
    show();
  });
  const name = node("span", { class: "sn-name" }, spec.label);
  return { element: node("label", { class: "sn-choice" }, name, select), show };
}

function cards(labels) {
  const values = labels.readouts.map(([label]) => node("span", { "data-readout": label }));
  const items = labels.readouts.map(([label], index) =>
    node("div", { class: "sn-card", role: "listitem" }, node("span", { class: "sn-name" }, label), values[index]));
  const show = (results) => labels.readouts.forEach(([, template], index) => {
    const [number, ...rest] = fill(template, results).split(" ");
    values[index].replaceChildren(number, ...(rest.length ? [node("small", {}, ` ${rest.join(" ")}`)] : []));
  });
  return { element: node("div", { class: "sn-cards", role: "list" }, ...items), show };
}

// A line of text in a figure: where it stands, how it is anchored, and its class.
function words(x, y, anchor, kind, text) {
  return svg("text", { x, y, "text-anchor": anchor, class: kind }, text);
}

// The figure is drawn at the width it has, so that its letters keep their size on a phone.
function figure(legend, draw) {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("role", "img");
  const element = node("div", { class: "sn-figure" }, picture, legend);
  const show = (results) => {
    const width = Math.max(260, Math.round(element.clientWidth || 640));
    const { height, label, body } = draw(results, width);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("width", width);
    picture.setAttribute("height", height);
    picture.setAttribute("aria-label", label);
    picture.innerHTML = body;
  };
  return { element, show };
}

function legendOf(...entries) {
  const sample = (kind) => node("span", { class: `sn-key-${kind}`, "aria-hidden": "true" });
  const items = entries.map(([kind, text]) => node("li", {}, sample(kind), text));
  return node("ul", { class: "sn-legend" }, ...items);
}

function niceTop(value) {
  return [1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 15, 18].find((top) => top >= value * 1.04) || 20;
}

function ticks(top, most) {
  const step = [0.1, 0.2, 0.25, 0.5, 1, 2, 5].find((size) => top / size <= most);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, index) => index * step);
}

// Builds the explorer into `el`; returns a function that takes it down.
function mount({ model, el }, { legend, draw, extras = [] }) {
  const labels = model.get("labels");
  const controls = model.get("sliders").map((spec) =>
    ({ ...(spec.options ? choiceControl : sliderControl)(model, spec), name: spec.name }));
  const readouts = cards(labels);
  const picture = figure(legend, draw);
  const spoken = node("p", { class: "sn-spoken", role: "status" });
  const box = node("div", { class: "sn-explorer", role: "group", "aria-label": labels.title },
    node("p", { class: "sn-title" }, labels.title),
    node("div", { class: "sn-sliders" }, ...controls.map((control) => control.element)),
    readouts.element, picture.element, ...extras, spoken);

  let timer = 0;
  let drawn = false;
  const settle = () => {
    const results = model.get("results");
    box.classList.toggle("sn-waiting", controls.some(({ name }) => results[name] !== model.get(name)));
  };
  const speak = () => {
    const results = model.get("results");
    spoken.textContent = labels.readouts.map(([label, template]) => `${label} ${fill(template, results)}`).join(", ");
  };
  const redraw = () => {
    const results = model.get("results");
    readouts.show(results);
    picture.show(results);
    settle();
    clearTimeout(timer);
    if (drawn) timer = setTimeout(speak, 600);
    drawn = true;
  };
  const moved = () => {
    controls.forEach((control) => control.show());
    settle();
  };

  el.classList.add("specnotes-widget");
  el.replaceChildren(box);
  moved();
  redraw();
  model.on("change:results", redraw);
  controls.forEach(({ name }) => model.on(`change:${name}`, moved));
  const sized = new ResizeObserver(() => picture.show(model.get("results")));
  sized.observe(picture.element);
  return () => {
    clearTimeout(timer);
    sized.disconnect();
    model.off("change:results", redraw);
    controls.forEach(({ name }) => model.off(`change:${name}`, moved));
  };
}
