// Shows a lost connection, signs out with the token, and bounds a page that is open for days.
"use strict";
const MOST_PIECES = 2000;
const notice = document.getElementById("link");
document.addEventListener("htmx:sse:error", (event) => {
  if (event.detail.status === 401) location.reload();
  if (notice) notice.hidden = false;
});
document.addEventListener("htmx:sse:after:connection", () => {
  if (notice) notice.hidden = true;
});
document.addEventListener("htmx:sse:after:message", () => {
  const log = document.getElementById("log");
  while (log && log.children.length > MOST_PIECES) log.firstElementChild.remove();
});
