// The page works without this script. With it, the part that changes is asked for
// once a second and replaced. The script never makes HTML of text: what it inserts is
// what the server has rendered, and the Content-Security-Policy forbids every inline
// script.
"use strict";

(function () {
  const live = document.getElementById("live");
  const mode = document.getElementById("mode");
  const announce = document.getElementById("announce");
  if (!live || !live.hasAttribute("data-view")) {
    return;
  }
  const address = new URL(location.href);
  address.searchParams.set("part", "changing");
  let last = "";
  let said = summary(live);
  let timer = 0;
  let asking = null; // ends the request under way

  function summary(root) {
    const found = root.querySelector("[data-summary]");
    return found ? found.dataset.summary : "";
  }

  function show(state) {
    if (mode.textContent !== mode.dataset[state]) {
      mode.textContent = mode.dataset[state];
    }
  }

  // selecting reports whether the reader has marked text in the part that changes.
  function selecting() {
    const marked = window.getSelection();
    return marked && !marked.isCollapsed && live.contains(marked.anchorNode);
  }

  // replace shows html, and keeps what the reader has: the focus, open details and
  // the places that lists are scrolled to.
  function replace(html) {
    if (html === last || selecting()) {
      return;
    }
    last = html;
    const fresh = new DOMParser().parseFromString(html, "text/html");
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    const scrolled = [];
    live.querySelectorAll("[id^=scroll-]").forEach(function (e) {
      scrolled.push([e.id, e.scrollLeft, e.scrollTop]);
    });
    live.querySelectorAll("details[open][id]").forEach(function (e) {
      const same = fresh.getElementById(e.id);
      if (same) {
        same.setAttribute("open", "");
      }
    });
    live.replaceChildren.apply(live, Array.from(fresh.body.childNodes));
    scrolled.forEach(function (place) {
      const same = document.getElementById(place[0]);
      if (same) {
        same.scrollLeft = place[1];
        same.scrollTop = place[2];
      }
    });
    if (focused) {
      const same = document.getElementById(focused);
      (same || live.closest("main")).focus({ preventScroll: true });
    }
    const now = summary(live);
    if (now !== said) {
      said = now;
      announce.textContent = now;
    }
  }

  async function ask() {
    const request = new AbortController();
    asking = request;
    const giveUp = setTimeout(function () { request.abort(); }, 10000);
    let pause = 1000;
    try {
      const response = await fetch(address, { signal: request.signal, redirect: "error" });
      const html = await response.text();
      if (!response.ok) {
        throw new Error(response.status);
      }
      if (asking === request) {
        replace(html);
        show("live");
      }
    } catch (_) {
      pause = 5000;
      if (asking === request) {
        show("broken");
      }
    }
    clearTimeout(giveUp);
    if (asking === request) {
      timer = setTimeout(ask, pause);
    }
  }

  function begin() {
    if (!asking && !document.hidden) {
      ask();
    }
  }

  function end() {
    clearTimeout(timer);
    if (asking) {
      const request = asking;
      asking = null;
      request.abort();
    }
    show("paused");
  }

  document.addEventListener("visibilitychange", function () {
    if (document.hidden) {
      end();
    } else {
      begin();
    }
  });
  window.addEventListener("pagehide", end);
  window.addEventListener("pageshow", begin);
  begin();
})();
