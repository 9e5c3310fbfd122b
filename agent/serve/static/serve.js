// The served pages: what is new is fetched, rows are searched and sorted here, two of them chosen to be compared.
(() => {
  "use strict";
  const live = document.getElementById("live");
  const offline = document.getElementById("offline");
  const EVERY_MS = 1000;

  // Clocks count on from what the server said, so that its clock and this one need not agree.
  let drawn = performance.now();
  const wall = (seconds) => {
    const whole = Math.round(seconds);
    if (whole < 60) return `${whole} s`;
    const two = (n) => String(n).padStart(2, "0");
    const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
    return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
  };
  const tick = () => {
    const since = (performance.now() - drawn) / 1000;
    document.querySelectorAll("[data-ticks]").forEach((e) => { e.textContent = wall(Number(e.dataset.ticks) + since); });
  };

  // Search, filters, order and choice stand in the address, so that a page can be reloaded, kept and sent.
  const asked = new URLSearchParams(location.search);
  const view = {
    q: asked.get("q") || "",
    only: new Set(asked.getAll("only")),
    sort: asked.get("sort") || "began",
    up: asked.get("order") === "up",
    pick: asked.getAll("pick").slice(-2),
  };
  const numeric = new Set(["speedup", "best", "iterations", "took", "cost"]);
  const keep = () => {
    const query = new URLSearchParams();
    if (view.q) query.set("q", view.q);
    view.only.forEach((word) => query.append("only", word));
    if (view.sort !== "began" || view.up) { query.set("sort", view.sort); query.set("order", view.up ? "up" : "down"); }
    view.pick.forEach((name) => query.append("pick", name));
    const text = query.toString();
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
  };

  const order = (a, b) => {
    const x = a.dataset[view.sort], y = b.dataset[view.sort];
    if (x === "" || y === "") return (x === "") - (y === ""); // what is not known comes last either way
    const by = numeric.has(view.sort) ? Number(x) - Number(y) : x.localeCompare(y);
    return view.up ? by : -by;
  };

  const arrange = () => {
    const table = document.getElementById("runs");
    if (!table) return;
    const body = table.tBodies[0];
    const rows = [...body.rows].sort(order);
    body.append(...rows);
    const words = view.q.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word)) && (!view.only.size || view.only.has(row.dataset.condition));
      row.hidden = !fits;
      shown += fits;
      const chosen = view.pick.includes(row.dataset.name);
      row.classList.toggle("chosen", chosen);
      row.querySelector(".choose").checked = chosen;
    }
    document.getElementById("count").textContent = shown === rows.length ? rows.length : `${shown} of ${rows.length}`;
    document.getElementById("none").hidden = shown > 0;
    const search = document.getElementById("search");
    if (search.value !== view.q) search.value = view.q;
    document.querySelectorAll(".chip").forEach((c) => c.setAttribute("aria-pressed", view.only.has(c.dataset.condition)));
    table.querySelectorAll("th").forEach((th) => {
      const button = th.querySelector(".sort");
      if (button && button.dataset.sort === view.sort) th.setAttribute("aria-sort", view.up ? "ascending" : "descending");
      else th.removeAttribute("aria-sort");
    });
    offer();
  };

  const offer = () => {
    const bar = document.getElementById("picked");
    bar.hidden = view.pick.length === 0;
    const two = view.pick.length === 2;
    bar.querySelector("span").textContent = two ? `${view.pick[0]} and ${view.pick[1]}` : `${view.pick[0]}: choose one more`;
    const link = bar.querySelector("a");
    link.setAttribute("aria-disabled", String(!two));
    link.href = two ? `/compare?${new URLSearchParams({ a: view.pick[0], b: view.pick[1] })}` : "/compare";
  };

  document.addEventListener("input", (event) => {
    if (event.target.id !== "search") return;
    view.q = event.target.value;
    keep(); arrange();
  });
  document.addEventListener("change", (event) => {
    if (!event.target.classList.contains("choose")) return;
    const name = event.target.value;
    view.pick = view.pick.filter((other) => other !== name);
    if (event.target.checked) view.pick = [...view.pick, name].slice(-2);
    keep(); arrange();
  });
  document.addEventListener("click", (event) => {
    const chip = event.target.closest(".chip"), sort = event.target.closest(".sort");
    if (chip) {
      const word = chip.dataset.condition;
      if (!view.only.delete(word)) view.only.add(word);
    } else if (sort) {
      const key = sort.dataset.sort;
      view.up = view.sort === key ? !view.up : !numeric.has(key) && key !== "began";
      view.sort = key;
    } else if (event.target.closest(".picked .plain")) {
      view.pick = [];
    } else return;
    keep(); arrange();
  });

  // What is new. Asked only while somebody looks: nothing here may cost a run that is being timed.
  let stamp = null;
  const replace = (text) => {
    const focused = document.activeElement && document.activeElement.id;
    const caret = focused === "search" ? document.activeElement.selectionStart : null;
    const across = [...live.querySelectorAll(".scroll")].map((e) => e.scrollLeft);
    live.innerHTML = text;
    live.querySelectorAll(".scroll").forEach((e, i) => { e.scrollLeft = across[i] || 0; });
    drawn = performance.now();
    arrange();
    if (focused === "search") {
      const search = document.getElementById("search");
      if (search) { search.focus(); search.setSelectionRange(caret, caret); }
    }
  };
  const poll = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(live.dataset.fragment, { headers: stamp ? { "If-None-Match": stamp } : {}, cache: "no-store" });
        if (answer.status === 200) { stamp = answer.headers.get("etag"); replace(await answer.text()); }
        offline.hidden = true;
      } catch {
        offline.hidden = false;
      }
    }
    setTimeout(poll, EVERY_MS);
  };

  arrange();
  if (live) {
    setInterval(tick, 500);
    setTimeout(poll, EVERY_MS);
  }
})();
