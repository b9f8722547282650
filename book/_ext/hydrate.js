// Draws each explorer's html twin with the explorer's own code; this stand-in for the model plays the kernel.
function standIn(settings, compute) {
  const values = { ...settings };
  const listeners = {};
  const call = (name) => (listeners[`change:${name}`] || []).forEach((listener) => listener());
  const recompute = () => { values.results = { ...values, ...compute(values) }; };
  recompute();
  return {
    get: (name) => values[name],
    set: (name, value) => { values[name] = value; recompute(); call(name); call("results"); },
    on: (event, listener) => { (listeners[event] = listeners[event] || []).push(listener); },
    off: (event, listener) => { listeners[event] = (listeners[event] || []).filter((kept) => kept !== listener); },
    save_changes: () => {},
  };
}

function hydrate(explorers) {
  for (const el of document.querySelectorAll(".specnotes-widget[data-widget]")) {
    const { render, compute } = explorers[el.dataset.widget];
    render({ model: standIn(JSON.parse(el.dataset.props), compute), el });
  }
}
