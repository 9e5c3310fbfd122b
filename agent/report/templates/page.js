// What a page adds where scripts run: tips on marks, folded parts that open when something leads there, a rail that follows.
(() => {
  "use strict";
  const tip = document.getElementById("tip");

  const show = (mark, x, y) => {
    tip.textContent = mark.getAttribute("aria-label");
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(x + 14, document.documentElement.clientWidth - box.width - 8);
    const below = y + 16 + box.height < window.innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${below ? y + 16 : y - box.height - 10}px`;
  };
  const hide = () => { tip.hidden = true; };
  const markOf = (target) => {
    const mark = target.closest("figure svg [aria-label][aria-roledescription]");
    return mark && !mark.querySelector("[aria-label]") ? mark : null;
  };
  document.addEventListener("pointermove", (event) => {
    const mark = event.target instanceof Element ? markOf(event.target) : null;
    if (mark) show(mark, event.clientX, event.clientY); else hide();
  });
  document.addEventListener("focusin", (event) => {
    const mark = event.target.matches("figure svg a") ? event.target.querySelector("[aria-label]") : null;
    if (!mark) { hide(); return; }
    const box = mark.getBoundingClientRect();
    show(mark, box.right, box.bottom);
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("scroll", hide, { passive: true });

  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    if (target.tagName === "DETAILS") target.querySelector("summary").focus({ preventScroll: true });
    target.scrollIntoView();
  };
  window.addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open]):not(.long)")];
    opened.forEach((part) => { part.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((part) => { part.open = false; }));

  const links = new Map([...document.querySelectorAll(".rail a[href^='#']")].map((a) => [a.hash.slice(1), a]));
  const follow = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((link) => link.removeAttribute("aria-current"));
      links.get(entry.target.id).setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -75% 0px" });
  links.forEach((_, id) => { const part = document.getElementById(id); if (part) follow.observe(part); });
})();
