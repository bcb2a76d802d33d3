// What the pages of the viewer do by themselves; all else is htmx, and links.

// Keys that follow a link of the page, or go to a field: `data-key` names them. In a list, j and k go to the next row and back.
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target.closest("input:not([type=checkbox]), select, textarea")) return;
  if (event.key.startsWith("Arrow") && event.target.closest("[tabindex], pre")) return;  // it scrolls
  const target = document.querySelector(`[data-key~="${CSS.escape(event.key)}"]`) || rowBeside(event.key);
  if (!target) return;
  event.preventDefault();
  if (target.matches("[data-key]:is(a, button)")) target.click();
  else target.focus();
});

function rowBeside(key) {
  if (key !== "j" && key !== "k") return null;
  const rows = [...document.querySelectorAll("table.listed tbody td:first-child a:first-of-type")];
  const at = rows.findIndex((row) => row.closest("tr").contains(document.activeElement));
  return rows[key === "j" ? at + 1 : Math.max(at - 1, 0)];
}

// A viewer that was stopped, or started again with another token, is said to be so: what is shown is old.
document.addEventListener("htmx:sendError", () => lost("The viewer does not answer: what is shown here may be old."));
document.addEventListener("htmx:responseError", (event) => {
  const status = event.detail.xhr.status;
  lost(status === 403 ? "The viewer was started anew: open the address that it printed." : `The viewer could not answer (${status}).`);
});
document.addEventListener("htmx:afterOnLoad", () => lost(""));

function lost(words) {
  const place = document.getElementById("lost");
  place.textContent = words;
  place.hidden = !words;
}

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
  const leadsTo = (item) => {
    const row = item?.datum;
    if (row?.link?.startsWith("/run/")) return row.link;
    return place && row?.candidate ? trialsOf(place, row) : "";
  };
  view.addEventListener("click", (event, item) => {
    if (leadsTo(item)) location.assign(leadsTo(item));
  });
  view.addEventListener("mousemove", (event, item) => figure.classList.toggle("leads", Boolean(leadsTo(item))));
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
