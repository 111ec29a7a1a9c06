// The console's own script: times in the viewer's zone, live parts, charts, and acts. All pages work without it, but for
// charts and acts; those are also shown as commands.
"use strict";
(() => {
  const words = [["y", 31536e6], ["mo", 2592e6], ["d", 864e5], ["h", 36e5], ["min", 6e4], ["s", 1e3]];
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const short = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit",
    second: "2-digit", hourCycle: "h23" });
  const long = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
  const withYear = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric",
    hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  // How far this machine's clock is ahead of the server's, when the page came.
  const came = performance.timeOrigin + performance.getEntriesByType("navigation")[0].responseStart;
  const skew = came - Number(document.documentElement.dataset.now || came);

  const parts = { month: { year: "numeric", month: "short" }, day: { month: "short", day: "numeric" },
    clock: { hour: "2-digit", minute: "2-digit", hourCycle: "h23" },
    second: { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" } };
  for (const form of Object.keys(parts)) parts[form] = new Intl.DateTimeFormat(undefined, parts[form]);

  function relative(ms) {
    const ahead = ms - (Date.now() - skew), size = Math.abs(ahead);
    if (size < 1500) return "now";
    for (const [word, unit] of words) {
      if (size >= unit) {
        const count = Math.floor(size / unit), text = `${count} ${word}`;
        return ahead > 0 ? `in ${text}` : `${text} ago`;
      }
    }
    return "now";
  }
  function times(root) {
    for (const one of root.querySelectorAll("time[data-ms]")) {
      const at = new Date(Number(one.dataset.ms)), year = at.getFullYear() === new Date().getFullYear();
      const text = (parts[one.dataset.form] || (year ? short : withYear)).format(at);
      if (one.textContent !== text) one.textContent = text;
      one.title = `${long.format(at)} (${zone})\n${at.toISOString()} (UTC)`;
    }
    for (const one of root.querySelectorAll(".ago[data-ms]")) {
      const text = relative(Number(one.dataset.ms));
      if (one.textContent !== text) one.textContent = text;
    }
  }
  times(document);
  for (const one of document.querySelectorAll("[data-zone]")) one.textContent = `Times are in ${zone}; point at one for UTC.`;
  setInterval(() => { if (!document.hidden) times(document); }, 1000);

  // -- live parts: what differs is changed, and nothing else --
  if (window.Idiomorph) {
    Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.tagName === "DETAILS");
    // Charts belong to the script.
    Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) => !(old.classList && old.classList.contains("chart"));
  }
  const lost = () => document.getElementById("lost");
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && event.detail.elt.id === "live") event.preventDefault();
  });
  document.addEventListener("htmx:afterSwap", () => times(document));
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt.id !== "live" || !lost()) return;
    const status = event.detail.xhr ? event.detail.xhr.status : 0;
    if (status === 401) location.reload();
    lost().hidden = event.detail.successful;
  });

  // -- charts --
  const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  const hues = () => matchMedia("(prefers-color-scheme: dark)").matches
    ? ["#5b9fe0", "#e8bd62", "#6fd09b", "#ff9a91", "#c3a6ff", "#7fd6d6"]
    : ["#0a5aa8", "#9a5b00", "#17693f", "#a3211a", "#6b3fb0", "#0c6b6b"];
  function span(ms) {
    if (ms == null) return "–";
    if (ms < 1000) return `${Math.round(ms)} ms`;
    return ms < 6e4 ? `${(ms / 1000).toPrecision(2)} s` : `${(ms / 6e4).toPrecision(2)} min`;
  }
  const rate = (value) => (value == null ? "–" : value >= 100 ? Math.round(value).toLocaleString() : String(+value.toPrecision(3)));
  function draw(holder, found) {
    const of = holder.dataset.of, format = of === "rate" ? rate : span;
    const width = Math.max(holder.clientWidth, 240);
    const names = Object.keys(found.targets), data = [found.at.map((ms) => ms / 1000), ...names.map((one) => found.targets[one][of])];
    if (holder.plot && holder.plot.names.join() === names.join()) {
      holder.plot.setData(data);
      return;
    }
    if (holder.plot) holder.plot.destroy();
    holder.textContent = "";
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    holder.plot = new uPlot({
      width, height: 200, cursor: { drag: { x: false, y: false } }, legend: { live: true },
      scales: { y: { range: (_plot, _low, high) => [0, Math.max(high || 0, of === "rate" ? 1 : 10) * 1.1] } },
      axes: [{ ...axis, space: 70, values: "{HH}:{mm}:{ss}" }, { ...axis, size: 58, values: (_plot, ticks) => ticks.map(format) }],
      series: [{ label: "at", value: (_plot, at) => (at ? new Date(at * 1000).toLocaleTimeString() : "–") },
        ...names.map((one, number) => ({ label: one, stroke: hues()[number % 6], width: 2, points: { show: false },
          dash: dashes[Math.floor(number / 2) % 4], value: (_plot, value) => (value == null ? "" : format(value)) }))],
    }, data, holder);
    holder.plot.names = names;
  }
  async function charts() {
    const holders = [...document.querySelectorAll(".chart[data-src]")];
    if (!holders.length || document.hidden) return;
    try {
      const answer = await fetch(holders[0].dataset.src, { headers: { accept: "application/json" } });
      if (!answer.ok) return;
      const found = await answer.json();
      for (const one of holders) draw(one, found);
    } catch (error) {
      if (lost()) lost().hidden = false;
    }
  }
  if (window.uPlot) {
    charts();
    setInterval(charts, 5000);
    const again = () => {
      for (const one of document.querySelectorAll(".chart")) if (one.plot) { one.plot.destroy(); one.plot = null; }
      charts();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again(); } });
  }

  // -- acts: a request to /v1, and its answer in words --
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("form[data-act]")) return;
    event.preventDefault();
    const said = form.querySelector("output"), button = form.querySelector("button");
    const typed = form.querySelector("input[data-typed]");
    if (typed && typed.value !== typed.dataset.typed) {
      said.textContent = `Type ${typed.dataset.typed} to go on.`;
      typed.focus();
      return;
    }
    const body = JSON.parse(form.dataset.body || "{}");
    for (const one of form.querySelectorAll("[name]")) if (one.value) body[one.name] = one.value;
    const url = new URL(form.dataset.act, location.href), method = form.dataset.method || "POST";
    if (method === "DELETE" && body.reason) url.searchParams.set("reason", body.reason);
    button.disabled = true;
    said.textContent = "…";
    try {
      const answer = await fetch(url, { method, headers: { "content-type": "application/json", accept: "application/json" },
        body: method === "DELETE" ? undefined : JSON.stringify(body) });
      const found = answer.status === 204 ? {} : await answer.json();
      if (!answer.ok) said.textContent = `Refused (${answer.status}): ${found.detail || answer.statusText}`;
      else {
        said.textContent = `Done: ${found.outcome || found.state || found.text || answer.statusText || answer.status}`;
        if (form.dataset.then === "reload") setTimeout(() => location.reload(), 1200);
      }
    } catch (error) {
      said.textContent = "No answer: the connection is lost. Look whether it was done before you try again.";
    }
    button.disabled = false;
  });
  for (const one of document.querySelectorAll("input[data-all]")) one.closest("label").hidden = false;
  document.addEventListener("change", (event) => {
    if (event.target.matches("input[data-all]")) {
      for (const one of document.querySelectorAll("input[name=pick]")) one.checked = event.target.checked;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, textarea, select")) {
      event.preventDefault();
      document.querySelector("#q").focus();
    }
  });
})();
