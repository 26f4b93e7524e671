// The page works without this script. With it, the part that changes is replaced
// whenever the server sends a new one. The script never makes HTML of text: what it
// inserts is what the server has rendered, and the Content-Security-Policy forbids
// every inline script.
"use strict";

(function () {
  const live = document.getElementById("live");
  const mode = document.getElementById("mode");
  const announce = document.getElementById("announce");
  if (!live || !live.hasAttribute("data-view") || !window.EventSource) {
    return;
  }
  const address = new URL("events", location.href);
  address.searchParams.set("view", live.dataset.view);
  const page = new URLSearchParams(location.search).get("page");
  if (page) {
    address.searchParams.set("page", page);
  }
  let source = null;
  let last = "";
  let said = summary(live);

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

  function open() {
    if (source || document.hidden) {
      return;
    }
    source = new EventSource(address);
    source.addEventListener("view", function (event) {
      show("live");
      replace(event.data);
    });
    source.addEventListener("error", function () {
      show("broken");
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(open, 5000);
      }
    });
  }

  function close() {
    if (source) {
      source.close();
      source = null;
    }
    show("paused");
  }

  document.addEventListener("visibilitychange", function () {
    if (document.hidden) {
      close();
    } else {
      open();
    }
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  open();
})();
