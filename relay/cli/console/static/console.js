// Updates a page that is visible, unless the reader has paused it, has selected text, or is within the part that would be replaced.
"use strict";

const pause = document.getElementById("pause");
let asking = false;

const isBusy = () =>
  asking ||
  document.hidden ||
  pause.getAttribute("aria-pressed") === "true" ||
  !document.getSelection().isCollapsed ||
  document.getElementById("main").contains(document.activeElement);

async function update() {
  if (isBusy()) return;
  const stale = document.getElementById("stale");
  asking = true;
  try {
    const answer = await fetch(location.href);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("main");
    if (fresh) document.getElementById("main").replaceChildren(...fresh.childNodes);
    stale.hidden = fresh !== null;
  } catch {
    stale.hidden = false;
  } finally {
    asking = false;
  }
}

if (pause) {
  pause.addEventListener("click", () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Updates are paused" : "Pause updates";
  });
  setInterval(update, Number(pause.dataset.refresh) * 1000);
  document.addEventListener("visibilitychange", update);
}
