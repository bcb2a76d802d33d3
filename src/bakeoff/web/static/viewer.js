// What the pages of the viewer do by themselves; all else is htmx, and links.

// Keys that follow a link of the page, or go to a field: `data-key` names the key.
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target.closest("input, select, textarea, [tabindex], pre")) return;
  const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!target) return;
  event.preventDefault();
  if (target.matches("a, button")) target.click();
  else target.focus();
});

// Charts: each is drawn from its specification, by an interpreter that needs no `eval`.
const views = new WeakMap();
const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });

function explain(handler, event, item, words) {
  tip.hidden = !words;
  tip.textContent = words || "";
  if (tip.hidden) return;
  const left = Math.min(event.pageX + 14, window.scrollX + document.documentElement.clientWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${event.pageY + 18}px`;
}

function trialsOf(place, row) {
  const query = new URLSearchParams({ candidate: row.candidate });
  if (row.category) query.set("category", row.category);
  return `${place}?${query}`;
}

async function draw(figure) {
  const compiled = vegaLite.compile(JSON.parse(figure.dataset.spec)).spec;
  const view = new vega.View(vega.parse(compiled, null, { ast: true }), {
    expr: vega.expressionInterpreter, renderer: "svg", container: figure, hover: true, tooltip: explain,
  });
  views.set(figure, view);
  const place = figure.closest("[data-trials]")?.dataset.trials;
  const rowOf = (item) => (place && item?.datum?.candidate ? item.datum : null);
  view.addEventListener("click", (event, item) => {
    if (rowOf(item)) location.assign(trialsOf(place, rowOf(item)));
  });
  view.addEventListener("mousemove", (event, item) => figure.classList.toggle("leads", Boolean(rowOf(item))));
  await view.runAsync();
  figure.classList.add("ready");
}

function drawAll(part) {
  const found = part.querySelectorAll("[data-spec]:not(.begun)");
  if (found.length && !tip.isConnected) document.body.append(tip);
  for (const figure of found) {
    figure.classList.add("begun");
    draw(figure);
  }
}

document.addEventListener("htmx:load", (event) => drawAll(event.detail.elt));
document.addEventListener("htmx:beforeCleanupElement", (event) => {
  views.get(event.detail.elt)?.finalize();
  tip.hidden = true;
});
